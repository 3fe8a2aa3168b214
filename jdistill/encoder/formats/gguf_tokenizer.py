"""The tokenizer of a GGUF file: byte-level BPE, BERT's word pieces, or a Unigram model, from its vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from jdistill.core.errors import UserError, first_line
from jdistill.core.json_files import Settings, said
from jdistill.encoder.formats.gguf_cuts import BPE_CUTS, IGNORE_MERGES, normalizer_of, pre_tokenizer_of

UNKNOWN, CONTROL, ADDED, UNUSED = (
    2,
    3,
    4,
    5,
)  # token_type of special tokens, of other added ones, and of rows without a token
BERT, BPE, UNIGRAM = "bert", "gpt2", "t5"  # tokenizer.ggml.model
PHANTOM = "\u2581"  # stands before a piece that begins a word; BERT's others have lost their ##
SPECIAL_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
BERT_ROLES = {"cls_token": "cls", "sep_token": "seperator", "mask_token": "mask"}  # spelt as llama.cpp spells it
BERT_ENDS = {"cls_token": "[CLS]", "sep_token": "[SEP]"}  # where no field names them: BERT's, which llama.cpp takes


def read_tokenizer(fields: dict[str, Any], path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a file's fields. Raises UserError for one of another kind, and naming the field that is damaged."""
    settings = Settings(fields, path)
    kind, cut = settings.raw("tokenizer.ggml.model", None), settings.text("tokenizer.ggml.pre", "gpt-2")
    if kind not in (BERT, UNIGRAM) and (kind != BPE or cut not in BPE_CUTS):
        raise UserError(
            f"{path}: its tokenizer is {kind!r} with pre-tokenizer {cut!r}; jdistill builds BERT's, Unigram ('t5'), and byte-level BPE "
            f"('gpt2') with {', '.join(BPE_CUTS)}. Load the model from its Hugging Face folder, which brings the tokenizer along"
        )
    tokens = _listed(settings, "tokenizer.ggml.tokens", str, "strings")
    types = settings.raw("tokenizer.ggml.token_type", None) or [1] * len(tokens)
    if not isinstance(types, list) or len(types) != len(tokens):
        raise settings.fault(
            "tokenizer.ggml.token_type", f"is {said(types)}; one number for each of {len(tokens)} tokens is needed"
        )
    ids = {
        role: settings.integer(f"tokenizer.ggml.{key}_token_id", 0, len(tokens) - 1, default=None)
        for role, key in (SPECIAL_ROLES | BERT_ROLES).items()
    }
    if kind == BERT:
        tokens = [_bert_piece(token, number) for token, number in zip(tokens, types, strict=True)]
    named = {role: tokens[i] for role, i in ids.items() if i is not None}
    vocab = {token: i for i, token in enumerate(tokens) if types[i] != UNUSED}
    added = [AddedToken(t, special=n == CONTROL) for t, n in zip(tokens, types, strict=True) if n in (CONTROL, ADDED)]
    if kind == BERT:
        named = {role: token for role, token in BERT_ENDS.items() if token in vocab} | named
    before, after = _ends(settings, str(kind), cut, named)
    try:
        made = _made(str(kind), cut, vocab, settings, named)
        made.add_special_tokens([token for token in added if token.special])
        made.add_tokens([token for token in added if not token.special])
        if before or after:
            made.post_processor = _template(made, before, after)
    except UserError:
        raise
    except Exception as error:  # the library raises Exception itself
        raise UserError(f"{path}: its tokenizer is damaged ({first_line(error)}); fetch the file again") from None
    return PreTrainedTokenizerFast(
        tokenizer_object=made, chat_template=settings.text("tokenizer.chat_template", None), **named
    )


def _listed(settings: Settings, key: str, kind: type, what: str) -> list[Any]:
    values = settings.raw(key)
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise settings.fault(key, f"is {said(values)}; a list of {what} is needed")
    return values


def _bert_piece(token: str, number: object) -> str:
    """A token as BERT's own files have it."""
    if number == ADDED:  # which llama.cpp's converter marks as the beginning of a word, and our writer does not
        return token.removeprefix(PHANTOM)
    if number in (CONTROL, UNUSED):
        return token
    return token[1:] if token.startswith(PHANTOM) else f"##{token}"


def _ends(settings: Settings, kind: str, cut: str, named: dict[str, str]) -> tuple[str, str]:
    """The tokens put before and behind every text, empty for none; where no field says whether, as llama.cpp does."""
    begins = kind == BERT or (kind == BPE and cut in IGNORE_MERGES)
    if kind == BERT and "cls_token" in named:  # the one field that most files have for what begins a text
        named = {"bos_token": named["cls_token"]} | named
    ends = []
    for role, default in (("bos", begins), ("sep" if kind == BERT else "eos", kind != BPE)):
        key = {"bos": "bos", "sep": "seperator", "eos": "eos"}[role]
        wanted = settings.flag(f"tokenizer.ggml.add_{role}_token", default)
        if wanted and f"{role}_token" not in named:
            is_set = settings.raw(f"tokenizer.ggml.add_{role}_token", None) is not None
            why = f"add_{role}_token is set" if is_set else "a tokenizer of this kind puts that token about every text"
            raise settings.fault(f"tokenizer.ggml.{key}_token_id", f"is missing, and {why}")
        ends.append(named[f"{role}_token"] if wanted else "")
    return ends[0], ends[1]


def _template(tokenizer: Tokenizer, before: str, after: str) -> processors.TemplateProcessing:
    ends = [token for token in dict.fromkeys((before, after)) if token]
    return processors.TemplateProcessing(
        single=" ".join(filter(None, (before, "$A", after))),
        pair=" ".join(filter(None, (before, "$A", after, before if not after else "", "$B", after))),
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ends],
    )


def _made(kind: str, cut: str, vocab: dict[str, int], settings: Settings, named: dict[str, str]) -> Tokenizer:
    """The tokenizer without its added tokens."""
    if kind == BERT:
        lowercase = settings.flag("tokenizer.ggml.normalizer.lowercase", True)
        strip = settings.flag("tokenizer.ggml.normalizer.strip_accents", lowercase)
        made = Tokenizer(models.WordPiece(vocab=vocab, unk_token=named.get("unk_token", "[UNK]")))
        made.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip)
        made.pre_tokenizer, made.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    elif kind == BPE:
        merges = [tuple(pair.split(" ", 1)) for pair in _listed(settings, "tokenizer.ggml.merges", str, "strings")]
        made = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=cut in IGNORE_MERGES))
        made.normalizer, made.pre_tokenizer = normalizer_of(cut), pre_tokenizer_of(cut)
        made.decoder = decoders.ByteLevel()
    else:
        made = _unigram(vocab, settings)
    return made


def _unigram(vocab: dict[str, int], settings: Settings) -> Tokenizer:
    scores = _listed(settings, "tokenizer.ggml.scores", float, "numbers")
    if list(vocab.values()) != list(range(len(vocab))) or len(scores) < len(vocab):
        raise settings.fault(
            "tokenizer.ggml.scores", f"are {len(scores)}, and tokens {len(vocab)}; one for each is needed"
        )
    unknown = settings.integer("tokenizer.ggml.unknown_token_id", 0, len(vocab) - 1, default=None)
    made = Tokenizer(models.Unigram([(token, scores[i]) for token, i in vocab.items()], unknown, False))
    steps: list[Any] = []
    if table := settings.raw("tokenizer.ggml.precompiled_charsmap", None):
        steps.append(normalizers.Precompiled(bytes(byte % 256 for byte in table)))
    made.normalizer = normalizers.Sequence(steps) if steps else None
    prefix = "always" if settings.flag("tokenizer.ggml.add_space_prefix", True) else "never"
    cut: list[Any] = [pre_tokenizers.Metaspace(PHANTOM, prefix)]
    if settings.flag("tokenizer.ggml.remove_extra_whitespaces", True):
        cut.insert(0, pre_tokenizers.WhitespaceSplit())
    made.pre_tokenizer = pre_tokenizers.Sequence(cut)
    made.decoder = decoders.Metaspace(PHANTOM, prefix)
    return made
