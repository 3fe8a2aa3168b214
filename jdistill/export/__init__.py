"""From a trained student to the folder that other tools load, each of its forms held against Flax."""
