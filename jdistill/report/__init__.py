"""The pages of a run and of a sweep."""
