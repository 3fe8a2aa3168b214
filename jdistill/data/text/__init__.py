"""Where texts come from."""
