"""What the campaign runs: every method, tiny, and every further command that writes. Their inputs are those of the tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).parents[2] / "tests")]

from campaign.launches import Launch

if TYPE_CHECKING:
    from jdistill.encoder.encoder import Encoder


EVERY = {
    "batch_size": 8, "max_steps": 6, "checkpoint_every": 2, "log_every": 2, "keep_last": 2, "held_out": 20, "length_buckets": 1,
    "latency_texts": 0, "index_texts": 60, "text": "{inputs}/text.txt", "text_column": "", "teacher": "{inputs}/teacher",
    "cache_dir": "{slot}/cache",
}  # fmt: skip
OF_IBKD: dict[str, object] = {
    "start": "", "triplets": "{inputs}/triplets.jsonl", "output_dim": 6, "student.layers": 1, "finetune.batch_size": 8,
    "finetune.max_steps": 4, "finetune.checkpoint_every": 2, "block_size": 0,
    "hsic.estimator": "biased", "hsic.unit_rows": False,  # as when the golden numbers were written
}  # fmt: skip
OF_BILSTM: dict[str, object] = {"student.embedding_size": 12, "student.lstm_size": 8}
OF_TASK: dict[str, object] = {
    "task": "flavour", "task_dir": "{inputs}/flavour", "scratch.embedding_size": 12, "scratch.lstm_size": 8, "text": "", "held_out": 0,
    "index_texts": 0,
}  # fmt: skip
OF_D2LLM: dict[str, object] = {
    "teacher": "{inputs}/lm", "text": "", "symmetric": "{inputs}/same.jsonl", "asymmetric": "{inputs}/answers.jsonl",
    "held_out_queries": 6, "dev_queries": 4, "hard_negatives": 3, "easy_negatives": 2, "positives": 1, "tune.batch_size": 8,
    "tune.max_steps": 4, "max_steps": 4, "tune.checkpoint_every": 2, "judge.query_tokens": 20, "judge.passage_tokens": 20,
    "lora.rank": 2, "tune.lora.rank": 2, "iem_size": 8, "query_length": 20, "document_length": 20, "teacher_dtype": "float32",
    "tune.prompts": "drawn", "patience": 5,  # as when the golden numbers were written
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A run of jdistill.main: a config file, its changed keys, on so many devices and processes."""

    name: str
    config: str
    keys: dict[str, object] = field(default_factory=dict)
    devices: int = 1
    processes: int = 1

    def launch(self, inputs: Path, slot: Path, workdir: str = "run", **how: object) -> Launch:
        keys = {key: str(value).format(inputs=inputs, slot=slot) for key, value in (EVERY | self.keys).items()}
        where = ["--config", f"configs/{self.config}", "--workdir", str(slot / workdir)]
        arguments = [*where, *(f"--config.{key}={value}" for key, value in keys.items())]
        return Launch("main", arguments, devices=self.devices, processes=self.processes, **how)  # type: ignore[arg-type]


SIMTDE: dict[str, object] = {
    "student.layers": 1, "student.embedding_size": 12, "student.dropout": 0.1, "dev_pairs": "{inputs}/dev.csv",
    "epochs": 1.0, "student.copy_layers": "last",  # as when the golden numbers were written
}  # fmt: skip
DISTILFACE: dict[str, object] = {
    "teacher": "",
    "start": "{inputs}/teacher",
    "student.layers": 1,
    "dev_pairs": "{inputs}/dev.csv",
    "pooling": "mean",
}

SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("simtde", "simtde.py", SIMTDE | {"latency_texts": 2}),
        Setting("simtde_packed", "simtde.py", SIMTDE | {"student.dropout": 0.0, "packed": True}),
        Setting("ibkd", "ibkd.py", OF_IBKD),
        Setting("mse", "ibkd.py:mse", OF_IBKD),
        Setting("crd", "ibkd.py:crd", OF_IBKD | {"loss.buffer_per_text": 3, "loss.critic_dim": 8}),
        Setting("hpd", "ibkd.py:hpd", OF_IBKD),
        Setting("supervised", "ibkd.py:supervised", OF_IBKD | {"teacher": "", "start": "{inputs}/teacher"}),
        Setting("distilface", "distilface.py", DISTILFACE),
        Setting("bilstm_sra", "bilstm_sra.py", OF_BILSTM),
        Setting("task", "bilstm_sra_task.py", OF_TASK | {"kd": "{inputs}/classifier", "student": "{inputs}/bilstm"}),
        Setting("d2llm", "d2llm.py", OF_D2LLM),
        Setting("simtde_4_devices", "simtde.py", SIMTDE, devices=4),
        Setting("ibkd_4_devices", "ibkd.py", OF_IBKD, devices=4),
        Setting("simtde_2_processes", "simtde.py", SIMTDE, processes=2),
        Setting("ibkd_2_processes", "ibkd.py", OF_IBKD, processes=2),
    )
}

# Commands beside jdistill.main: name -> (module, arguments, whether a finished run of simtde lies in {slot}/run).
COMMANDS: dict[str, tuple[str, str, bool]] = {
    "export": ("export", "--workdir {slot}/run --out {slot}/out --format onnx", True),
    "export_int8": ("export", "--workdir {slot}/run --out {slot}/out --quantize int8", True),
    "search": ("search", "river --workdir {slot}/run", True),
    "evaluate": ("evaluate", "--model {inputs}/teacher --pairs {inputs}/dev.csv --out {slot}/out.json", False),
    "mine": ("mine", "--pairs {inputs}/triplets.jsonl --by bm25 --count 2 --out {slot}/mined.jsonl", False),
    "mine_dense": (
        "mine",
        "--pairs {inputs}/triplets.jsonl --by {inputs}/teacher --count 2 --out {slot}/mined.jsonl",
        False,
    ),
    "compare": (
        "compare",
        "--models a={inputs}/teacher b={inputs}/lm --senteval {inputs}/senteval --texts {inputs}/text.txt --out {slot}/out",
        False,
    ),
}


def launch_of(name: str, inputs: Path, slot: Path, **how: object) -> Launch:
    """The launch of a setting, of "sweep", or of one of COMMANDS."""
    if name in SETTINGS:
        return SETTINGS[name].launch(inputs, slot, **how)  # type: ignore[arg-type]
    if name == "sweep":
        run = Setting("sweep", "distilface.py", DISTILFACE | {"max_steps": 4}).launch(inputs, slot, "sweep")
        return Launch("sweep", [*run.arguments, "--grid=learning_rate=1e-3,1e-2"], **how)  # type: ignore[arg-type]
    module, arguments, _ = COMMANDS[name]
    return Launch(module, arguments.format(inputs=inputs, slot=slot).split(), **how)  # type: ignore[arg-type]


def write_inputs(folder: Path) -> Callable[[], object]:
    """For a child: makes teachers, texts, triplets, pairs, a task and a classifier to learn it from."""

    def write() -> None:
        import numpy as np
        from bilstm_setting import flavour
        from conftest import make_decoder, make_encoder, save_encoder, sentences, write_senseless_pairs, write_stsb
        from d2llm_setting import write_pairs

        from jdistill.encoder.classifier import Classifier, save_head
        from jdistill.export.folder import export
        from jdistill.models.classifier_head import random_head

        folder.mkdir(parents=True)
        save_encoder(make_encoder(num_layers=2), folder / "teacher")
        save_encoder(make_decoder(num_layers=2, max_positions=256), folder / "lm")
        texts = sentences(240)
        (folder / "text.txt").write_text("\n".join(texts) + "\n")
        rows = [
            dict(zip(("anchor", "positive", "negative"), row, strict=True))
            for row in zip(*[iter(texts)] * 3, strict=True)
        ]
        (folder / "triplets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        write_senseless_pairs(folder / "dev.csv", 12)
        write_pairs(folder / "same.jsonl", 24, split=True)
        write_pairs(folder / "answers.jsonl", 24, split=False)
        flavour(folder / "flavour", pairs=False)
        write_stsb(
            folder / "senteval",
            [f"{i % 6}\t{a}\t{b}" for i, (a, b) in enumerate(zip(texts, texts[1:20], strict=False))],
        )
        encoder = make_encoder(num_layers=1)
        export(encoder, folder / "classifier")
        head = random_head(encoder.dim, 1, 8, 2, np.random.default_rng(0))
        save_head(Classifier(encoder, head, ("0", "1"), False), folder / "classifier")
        export(make_bilstm_student(), folder / "bilstm")

    return write


def make_bilstm_student() -> Encoder:
    from dataclasses import replace

    from conftest import make_encoder
    from simtde_setting import random_tokens

    from configs import bilstm_sra
    from jdistill.students.bilstm import make_bilstm, make_tokenizer

    cfg, start = bilstm_sra.get_config(), make_encoder(num_layers=1)
    cfg.update_from_flattened_dict(OF_BILSTM)
    return make_bilstm(
        cfg, replace(start, tokenizer=make_tokenizer(cfg, start)), random_tokens(50, vocab_size=1000), 32
    )
