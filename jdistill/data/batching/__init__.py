"""From tokens to batches."""
