"""What a sentence-transformers folder says beside its modules: prompts and maximum length, and what is done with its vectors."""

from __future__ import annotations

from pathlib import Path

from jdistill.core.json_files import Settings, read_settings
from jdistill.core.progress import log
from jdistill.models.architecture import Architecture

# What a transformer's own settings were called, by its kind, before they were called the same of all.
OLDER_NAMES = tuple(
    f"sentence_{kind}_config.json" for kind in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
OTHERWISE_CUT = ("query_length", "document_length", "query_expansion")  # a transformer's settings for texts of one role
# What a transformer's settings hand on to the config, the tokenizer and the model, by their names of now and of before, and what of it
# changes no vector beyond rounding.
HANDED_ON = tuple(f"{to}_{name}" for to in ("config", "tokenizer", "processor", "model") for name in ("args", "kwargs"))
HARMLESS = {
    "trust_remote_code", "token", "revision", "cache_dir", "local_files_only", "use_fast", "dtype", "torch_dtype", "attn_implementation",
    "add_pooling_layer",
}  # fmt: skip
AS_TEACHER = "the model can teach as it is through st:SOURCE (torch extra)"


def read_prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    """As prompts_of, of config_sentence_transformers.json, where there is one."""
    return prompts_of(read_encoding(folder))


def read_encoding(folder: Path) -> Settings:
    """What config_sentence_transformers.json says of encoding, nothing where there is none."""
    return read_settings(folder / "config_sentence_transformers.json", optional=True)


def check_encoding(settings: Settings, width: int, normalize: bool) -> None:
    """Tells of a similarity that is not the cosine, by which vectors are compared here.

    Args:
      settings: of read_encoding.
      width: of the model's vectors.
      normalize: whether they have length one, so that their dot product is the cosine.

    Raises: UserError where sentence-transformers cuts them to fewer numbers.
    """
    cut = settings.integer("truncate_dim", 1, default=None)
    if cut is not None and cut < width:
        raise settings.fault(
            "truncate_dim",
            f"is {cut}: sentence-transformers keeps the first {cut} of the {width} numbers of a vector, and here all count. Take the key out "
            f"of a copy of the folder to mean all {width}; {AS_TEACHER}",
        )
    similarity = settings.text("similarity_fn_name", None)
    if similarity not in (None, "cosine") and not normalize:
        log.warning(
            "WARNING: %s: the model's vectors are made to be compared by %s; evaluation, search and exports compare them by cosine",
            settings.path, similarity,
        )  # fmt: skip


def prompts_of(settings: Settings) -> tuple[dict[str, str], str | None]:
    """(name -> text of the prompts that have one, the default's name or None) by sentence-transformers' keys.

    Raises: UserError for a default that is none of the prompts.
    """
    listed = settings.part("prompts")
    prompts = {name: text for name in listed.values if (text := listed.text(name, ""))}
    default = settings.text("default_prompt_name", None)
    if default is not None and default not in listed.values:
        raise settings.fault(
            "default_prompt_name", f"is {default[:60]!r}, which is none of the prompts {list(prompts)}"
        )
    return prompts, default if default in prompts else None


def read_first_module(folder: Path, name: str) -> Settings:
    """The settings of a folder's first module, nothing where there are none.

    Args:
      name: of their file; that of a transformer may have an older one.
    """
    names = (name, *OLDER_NAMES) if name == Architecture.length_file else (name,)
    every = (read_settings(folder / other, optional=True) for other in names)
    return next((settings for settings in every if settings.values), Settings({}, folder / name))


def check_texts_as_they_are(settings: Settings, has_template: bool, in_modules: bool) -> None:
    """Tells of what sentence-transformers, from release 6 on, does otherwise than here: texts that are not tokenised as they are and cut at
    the maximum length, and settings that change the model.

    Args:
      settings: of a transformer, by read_first_module.
      has_template: whether its tokenizer has a chat template.
      in_modules: whether modules.json lists it; of other folders sentence-transformers reads no such settings, and takes any template.

    Raises: UserError where the settings ask for it.
    """
    if not in_modules:
        if has_template:
            log.info(
                "%s has a chat template and no modules.json: its texts are read as they are, where sentence-transformers from 6 on puts them "
                "into the template; %s",
                settings.path.parent, AS_TEACHER,
            )  # fmt: skip
        return
    if has_template and "message" in settings.part("modality_config").values:
        raise settings.fault(
            "modality_config", f"has texts put into the tokenizer's chat template (message); {AS_TEACHER}"
        )
    for key in HANDED_ON:
        if changes := sorted(settings.part(key).values.keys() - HARMLESS):
            raise settings.fault(key, f"changes the model or its tokenizer ({', '.join(changes)}); {AS_TEACHER}")
    if (other := settings.raw("tokenizer_name_or_path", None)) is not None:
        raise settings.fault("tokenizer_name_or_path", f"takes the tokenizer of {str(other)[:60]!r}; {AS_TEACHER}")
    if (task := settings.text("transformer_task", "feature-extraction")) != "feature-extraction":
        raise settings.fault("transformer_task", f"is {task}: its vectors are no token states; {AS_TEACHER}")
    of_text = settings.part("modality_config").part("text")
    if (output := of_text.raw("method_output_name", "last_hidden_state")) != "last_hidden_state":
        raise settings.fault("modality_config", f"takes {output} of the model, not its last layer; {AS_TEACHER}")
    for key in OTHERWISE_CUT:
        if settings.raw(key, None) is not None:
            raise settings.fault(key, f"cuts or fills texts by their role; {AS_TEACHER}")
    options = settings.part("processing_kwargs")
    for key in ("common", "text"):
        if options.part(key).values:
            raise settings.fault("processing_kwargs", f"sets how texts are tokenised ({key}); {AS_TEACHER}")


def read_limit(settings: Settings, default: int | None = None) -> int | None:
    """max_seq_length, in tokens; null, as missing, means the default."""
    return settings.integer("max_seq_length", 1, 2**53, default=default)
