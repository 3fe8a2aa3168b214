"""LangChain's class for local sentence-transformers."""

from langchain_huggingface import HuggingFaceEmbeddings
from measure import FOLDER, measure


def encode(texts, batch):
    """The vectors of texts, so many at a time."""
    model.encode_kwargs["batch_size"] = batch
    return model.embed_documents(texts)


model = HuggingFaceEmbeddings(model_name=str(FOLDER), model_kwargs={"device": "cpu"}, encode_kwargs={})
measure(encode, "langchain-huggingface", "sentence-transformers", "transformers")
