"""A small random ModernBERT with a tokenizer of its kind: byte-level BPE, special tokens behind the pieces."""

from __future__ import annotations

from conftest import random_params, sentences
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from jdistill.encoder.encoder import Encoder
from jdistill.models.modernbert import ModernBertConfig
from jdistill.models.modernbert.config import by_turns

SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")


def tiny_modernbert_config(**changes: object) -> ModernBertConfig:
    """4 layers, 32 wide, the first and the last global, the others with a window of 8 tokens."""
    settings: dict = dict(
        vocab_size=400,
        hidden_size=32,
        num_layers=4,
        num_heads=4,
        intermediate_size=48,
        max_positions=96,
        layer_types=by_turns(changes.get("num_layers", 4), 3),  # type: ignore[arg-type]
        local_attention=8,
        global_theta=160_000.0,
        local_theta=10_000.0,
        norm_eps=1e-5,
        activation="gelu",
        attention_bias=False,
        mlp_bias=False,
        norm_bias=False,
        pad_token_id=0,
    )
    return ModernBertConfig(**(settings | changes))


def modernbert_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Pieces learnt from some texts, as a fast tokenizer without a class of its own, which ModernBERT's is."""
    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learnt.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learnt.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=380, initial_alphabet=alphabet, show_progress=False)
    )
    learnt.add_special_tokens([AddedToken(token, lstrip=token == "[MASK]") for token in SPECIAL])
    ends = [(token, learnt.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    learnt.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=ends
    )
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL}
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=learnt, **names, model_max_length=96, model_input_names=inputs)


def make_modernbert(seed: int = 0, **changes: object) -> Encoder:
    tokenizer = modernbert_tokenizer(sentences(300))
    config = tiny_modernbert_config(**{"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id} | changes)
    params = random_params(config, seed)
    return Encoder(config, params, tokenizer, normalize=True, max_length=config.usable_positions, source="tiny")
