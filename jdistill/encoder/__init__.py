"""A model with its tokenizer, pooling and prompts: from texts to vectors."""
