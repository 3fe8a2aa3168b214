"""THE training loop, its steps and its checkpoints."""
