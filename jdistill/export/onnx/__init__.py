"""ONNX graphs, built from the exported folder alone: an independent check of Flax."""
