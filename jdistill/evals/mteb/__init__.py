"""Encoders on mteb's tasks, scored by mteb's own code (the mteb extra)."""
