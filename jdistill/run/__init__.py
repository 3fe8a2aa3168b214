"""A run: its stages in their order, its dry run and its end."""
