"""Architectures as pure functions of a tree of parameters, and the layers that they share."""
