"""What is measured when a GPU is lent (bench/gpu.sh), a file a part."""
