"""Random decoders by transformers, and folders of e5-mistral, Qwen3-Embedding and EmbeddingGemma as on the Hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import sentences
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from jdistill.encoder.encoder import Encoder

TEXTS = [*sentences(6), "Where is the house?\nBy the river.", "Où est la maison, 字?", "", " ".join(sentences(9))]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MISTRAL_SPECIAL = ["<unk>", "<s>", "</s>"]
GEMMA_SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN_PROMPTS = {
    "query": "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
    "document": "",
}
GEMMA_PROMPTS = {
    "query": "task: search result | query: ",
    "document": "title: none | text: ",
    "Clustering": "task: clustering | query: ",
    "STS": "task: sentence similarity | query: ",
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
GEMMA = {"head_dim": 20, "query_pre_attn_scalar": 50, "sliding_window": 8, "sliding_window_pattern": 2}
# Name of the classes, and what differs from the small sizes of all. Texts have 17 tokens.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama_biased": ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral_window": ("Mistral", {"sliding_window": 4, "head_dim": 20}),
    "qwen2": ("Qwen2", {}),
    "qwen2_window": ("Qwen2", QWEN_WINDOW),
    "qwen3": ("Qwen3", {"head_dim": 20}),
    "qwen3_window": ("Qwen3", QWEN_WINDOW | {"head_dim": 20, "attention_bias": True}),
    "gemma3": ("Gemma3", GEMMA | {"use_bidirectional_attention": True}),
    "gemma3_causal": ("Gemma3", GEMMA | {"tie_word_embeddings": False, "attention_bias": True}),
}


BUILT_IN = "sentence_transformers.models."


def learnt(special: list[str], metaspace: bool, size: int = 400) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """(vocabulary, merges) of byte pairs learnt from sentences: with bytes to fall back on, or of bytes."""
    tokenizer = Tokenizer(models.BPE())
    if metaspace:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special + BYTES, show_progress=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(sentences(60), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def ending(tokenizer: Any, template: str, *tokens: str) -> Any:
    """The tokenizer with special tokens about each text."""
    ids = [(token, tokenizer.convert_tokens_to_ids(token)) for token in tokens]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    return tokenizer


def mistral_tokenizer() -> Any:
    from transformers import LlamaTokenizer

    vocabulary, merges = learnt(MISTRAL_SPECIAL, metaspace=True)
    tokenizer = LlamaTokenizer(vocab=vocabulary, merges=merges, pad_token="</s>", add_eos_token=True)
    return ending(tokenizer, "<s> $A </s>", "<s>", "</s>")


def qwen_tokenizer() -> Any:
    from transformers import Qwen2Tokenizer

    vocabulary, merges = learnt([], metaspace=False)
    vocabulary |= {token: len(vocabulary) + i for i, token in enumerate(QWEN_SPECIAL)}
    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=merges, eos_token="<|im_end|>", padding_side="left")
    return ending(tokenizer, "$A <|endoftext|>", "<|endoftext|>")


def gemma_tokenizer(image_token: bool = True) -> Any:
    """image_token: with the one that EmbeddingGemma's has from its larger relatives, for which its table has no row."""
    from transformers import GemmaTokenizer

    vocabulary, merges = learnt(GEMMA_SPECIAL, metaspace=True)
    more = {"extra_special_tokens": {"image_token": "<image_soft_token>"}} if image_token else {}
    tokenizer = GemmaTokenizer(vocab=vocabulary, merges=merges, padding_side="right", model_max_length=64, **more)
    return ending(tokenizer, "<bos> $A <eos>", "<bos>", "<eos>")


SIZES = {
    "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
    "max_position_embeddings": 128,
}  # fmt: skip
GEMMA_SIZES = {"head_dim": 16, "num_key_value_heads": 1, "query_pre_attn_scalar": 16, "sliding_window": 8}
GEMMA_LAYERS = {"layer_types": ["sliding_attention", "full_attention"] * 2, "use_bidirectional_attention": True}
# Class of the model, what config.json has beside SIZES, tokenizer, pooling, widths of Dense modules, prompts.
PUBLISHED: dict[str, tuple[str, dict[str, Any], Any, str, list[int], dict[str, str]]] = {
    "e5-mistral": ("Mistral", {"sliding_window": 6}, mistral_tokenizer, "lasttoken", [], {}),
    "qwen3-embedding": ("Qwen3", {"head_dim": 16}, qwen_tokenizer, "lasttoken", [], QWEN_PROMPTS),
    "embeddinggemma": ("Gemma3", GEMMA_SIZES | GEMMA_LAYERS, gemma_tokenizer, "mean", [48, 32], GEMMA_PROMPTS),
}


def write_published(name: str, folder: Path) -> Path:
    """A model of PUBLISHED in a folder, laid out as on the Hub, by transformers' own files."""
    torch = pytest.importorskip("torch", reason="transformers writes the weights")
    import transformers

    kind, changes, make_tokenizer, pooling, widths, prompts = PUBLISHED[name]
    tokenizer = make_tokenizer()
    rows = len(tokenizer) - (tokenizer.convert_tokens_to_ids("<image_soft_token>") == len(tokenizer) - 1)
    config = getattr(transformers, f"{kind}{'Text' * (kind == 'Gemma3')}Config")
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}{'Text' * (kind == 'Gemma3')}Model")(
        config(**SIZES | changes, vocab_size=rows)
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(
            parameter, 0.5 if parameter.ndim == 1 and kind != "Gemma3" else 0.0, 0.15
        )  # Gemma's norms are 1 + w
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kinds = ["Transformer", "Pooling", *["Dense"] * len(widths), "Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{module}" if i else "", "type": BUILT_IN + module}
        for i, module in enumerate(kinds)
    ]
    for module in modules[1:]:
        (folder / module["path"]).mkdir(exist_ok=True)
    modes = {
        "cls_token": False,
        "mean_tokens": pooling == "mean",
        "max_tokens": False,
        "lasttoken": pooling == "lasttoken",
    }
    flags = {f"pooling_mode_{mode}": on for mode, on in modes.items()}
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": 32, "include_prompt": True} | flags)
    rng, width = np.random.default_rng(0), 32
    for i, out in enumerate(widths, 2):
        activation = "torch.nn.modules.linear.Identity"
        about = {"in_features": width, "out_features": out, "bias": False, "activation_function": activation}
        write(folder / f"{i}_Dense/config.json", about)
        kernel = rng.normal(0, width**-0.5, (out, width)).astype(np.float32)
        save_file({"linear.weight": kernel}, folder / f"{i}_Dense/model.safetensors")
        width = out
    write(folder / "modules.json", modules)
    write(folder / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": None})
    if name == "embeddinggemma":
        write(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})
    return folder


def check_against_sentence_transformers(model: Encoder, folder: Path, texts: list[str]) -> None:
    """Queries and documents, each with the prompt of its role, in batches of texts of several lengths."""
    import sentence_transformers

    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    for role in ("query", "document"):
        found = model.encode(texts, prompt=model.prompt_for(role), batch_size=4)
        np.testing.assert_allclose(found, getattr(theirs, f"encode_{role}")(texts, batch_size=4), atol=2e-6)


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def torch_model(kind: str, folder: Path) -> Any:
    """A random model of KINDS with its output layer, saved in float32."""
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    name, changes = KINDS[kind]
    small = dict(vocab_size=120, hidden_size=48, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2)
    small |= dict(intermediate_size=96, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    config = getattr(transformers, f"{name}{'Text' * (name == 'Gemma3')}Config")(**small | changes)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for parameter in model.parameters():  # biases and norms too, which start as 0 and 1
        torch.nn.init.normal_(parameter, 0.5 if parameter.ndim == 1 and name != "Gemma3" else 0.0, 0.1)
    model.save_pretrained(folder)
    return model
