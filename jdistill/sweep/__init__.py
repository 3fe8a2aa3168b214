"""Many short runs, to choose the values of a config."""
