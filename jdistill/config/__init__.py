"""The config file, its keys with their ranges, and the command line."""
