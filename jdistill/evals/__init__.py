"""Evaluations: from an encoder and data to numbers."""
