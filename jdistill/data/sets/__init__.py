"""Labelled sets and evaluation sets."""
