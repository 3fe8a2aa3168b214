"""A tokenizer with fewer pieces: what of it must stay, what a BPE makes its pieces from, and its files anew."""
