"""Texts, labelled and evaluation sets, and their order in batches: numpy and Arrow, no JAX."""
