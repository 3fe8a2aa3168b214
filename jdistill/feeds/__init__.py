"""Kinds of training data: their batches, their dev scores, and what is done at the end."""
