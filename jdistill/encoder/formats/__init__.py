"""What is read and written of models: Hugging Face, sentence-transformers, GGUF."""
