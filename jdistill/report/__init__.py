"""The pages of a run, of a sweep and of a comparison."""
