"""LlamaIndex's class for local sentence-transformers."""

from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from measure import FOLDER, measure


def encode(texts, batch):
    """The vectors of texts, so many at a time."""
    model.embed_batch_size = batch
    return model.get_text_embedding_batch(texts)


model = HuggingFaceEmbedding(model_name=str(FOLDER), device="cpu")
measure(encode, "llama-index-embeddings-huggingface", "sentence-transformers", "transformers")
