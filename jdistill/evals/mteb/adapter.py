"""An encoder behind mteb's protocol: each text gets the prompt that the encoder has for the task, or for the text's role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder, get_prompt_name
from mteb.models.model_meta import ScoringFunction
from mteb.types import PromptType

from jdistill.core.digest import digest
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.text_encoder import TextEncoder

BATCH = 64  # texts at a time, where mteb does not say
PROBES = ("The cat sat on the mat.", "What does a radio telescope measure?")  # whose vectors tell models apart
FRAMEWORKS = {"flax": "JAX", "torch": "Sentence Transformers", "onnx": "ONNX"}  # by our backends, as mteb calls them


class MtebEncoder(AbsEncoder):
    """What mteb asks of a model, answered by an encoder.

    Args:
      encoder: embeds every text, or, with a corpus_model, queries and texts without a role.
      mteb_model_meta: as model_meta gives it.
      corpus_model: embeds documents in the encoder's place; None: nobody does.
    """

    mteb_model_meta: ModelMeta

    def __init__(self, encoder: TextEncoder, mteb_model_meta: ModelMeta, corpus_model: TextEncoder | None = None):
        self.encoder, self.mteb_model_meta, self.corpus_model = encoder, mteb_model_meta, corpus_model

    def encode(self, inputs: Any, *, task_metadata: Any, prompt_type: Any = None, **options: Any) -> np.ndarray:
        """The vectors of a loader's texts, float32 [N, dim].

        Args:
          inputs: batches, each with a list of texts under "text".
          task_metadata: of the task, by whose name or type the encoder may have a prompt.
          prompt_type: the texts' role; None: they have none.
          options: batch_size counts; what else mteb hands over says nothing of the vectors.
        """
        is_document = prompt_type == PromptType.document
        model = self.corpus_model if is_document and self.corpus_model is not None else self.encoder
        texts = [text for batch in inputs for text in batch["text"]]
        prompt = prompt_of(model, task_metadata, prompt_type)
        return model.encode(texts, batch_size=options.get("batch_size", BATCH), prompt=prompt, show_progress=True)


def prompt_of(model: TextEncoder, task_metadata: Any, prompt_type: Any) -> str | None:
    """The name of the prompt by mteb's order (task, then type of task, then role); else ours for the role; "": none; None: the default."""
    said = {name: text for name, text in model.prompts.items() if text}  # sentence-transformers adds empty ones
    name = get_prompt_name(said, task_metadata, prompt_type)
    return model.prompt_for(prompt_type.value) if name is None and prompt_type else name


def model_meta(
    encoder: TextEncoder,
    source: str,
    backend: str = "flax",
    corpus_model: TextEncoder | None = None,
    corpus_source: str = "",
) -> ModelMeta:
    """What mteb writes beside results, and the name and revision that tell models apart in a folder of them.

    Args:
      encoder: the model.
      source: it was loaded from; its last two parts are the model's name, so that a hub id keeps its own.
      backend: a key of FRAMEWORKS.
      corpus_model, corpus_source: of what embeds documents in its place; the results are then an experiment, in mteb's words.
    """
    about = {
        "name": model_name(source),
        "revision": revision_of(encoder),
        "n_parameters": encoder.num_params,
        "memory_usage_mb": encoder.num_params * 4 / 2**20,
        "embed_dim": encoder.dim,
        "max_tokens": getattr(encoder, "max_length", None),
        "framework": [FRAMEWORKS[backend]],
        "similarity_fn_name": ScoringFunction.COSINE,
        "use_instructions": bool(encoder.prompts),
    }
    if corpus_model is not None:
        owner = f"{model_name(corpus_source).replace('/', '__')}-{revision_of(corpus_model)[:8]}"
        about["experiment_kwargs"] = {"corpus_model": owner}
    return ModelMeta.create_empty(about)


def model_name(source: str) -> str:
    """owner/name of a source: its last two parts, those of the whole path where it has but one."""
    path = source.removeprefix("pkg:").rstrip("/")
    parts = Path(path).parts if len(Path(path).parts) > 1 else Path(path).absolute().parts
    return "/".join(part.strip("/") or "model" for part in ("model", *parts)[-2:])


def revision_of(encoder: TextEncoder) -> str:
    """32 hexadecimal digits: an Encoder's fingerprint, its prompts included; of another runtime's model a digest of what it makes of some texts."""
    if isinstance(encoder, Encoder):
        return encoder.fingerprint_in_roles()
    roles = (None, encoder.prompt_for("query"), encoder.prompt_for("document"))
    return digest(*(encoder.encode(list(PROBES), prompt=prompt) for prompt in roles))
