"""A student for search in its teacher's space: it reads the questions, and the index is the teacher's own.

Method: SimTDE (configs/simtde.py), whose sentence loss leaves the student at its teacher's very vectors; asked this way
round after LEAF (Vujanic and Rueckstiess 2025).

    python -m jdistill.main --config configs/search.py --workdir runs/search \\
        --config.teacher=FOLDER --config.text=passages.txt.gz --config.pairs=pairs.jsonl --config.dev_retrieval=COLLECTIONS
    python -m jdistill.search --workdir runs/search "a question"

Without a variant the student has all of its teacher's layers, each with one and a half times as many inner neurons as
it is wide, and a token table of 112 numbers for 28,000 pieces, for whose start rare tokens count more; it is trained by
Muon. Cost and figures: docs/results/search.md. The compute type is bfloat16 where this machine is fast in it (dtype
auto). Variants, --config configs/search.py:NAME, are those of
configs/simtde.py (of those whose students leave the teacher's space, kl, pair_mse and pair_mae, the teacher's index is
refused), and

    wide       24,000 pieces of 160 numbers, and as many inner neurons as a layer is wide: a percent and a half fewer
               parameters, further from the teacher, most on words that the text lacks (docs/results/search.md)
    read       a finished student, --config.start=runs/search/export or another of its kind, goes on over the passages
               that it is to search (docs/search.md)
"""

from ml_collections import ConfigDict

from configs import base, simtde

OWN: dict[str, dict[str, object]] = {
    "": {
        "student.vocabulary": "28000",
        "student.embedding_size": 112,
        "student.intermediate_size": -2,
        "student.start": "tempered",
    },
    "wide": {"student.vocabulary": "24000", "student.embedding_size": 160},
    # The start as it is, no part of it made smaller again; it reads by another vocabulary than its teacher, so vectors alone are imitated.
    "read": {
        "start": "runs/search/export",
        "student.layers": 0,
        "student.vocabulary": "",
        "student.embedding_size": -1,
        "student.intermediate_size": 0,
        "loss.token": "none",
        "held_out": 0,
        "learning_rate": 5e-4,
        "epochs": 3.0,
    },
}
VARIANTS = simtde.VARIANTS | OWN


def get_config(variant: str = "") -> ConfigDict:
    # Thin: all layers, each with fewer neurons; nearer to the teacher than three, by one seed (docs/results/search.md).
    c = simtde.get_config(variant if variant in simtde.VARIANTS and variant not in OWN else "thin")
    c.text = ""  # the passages that are to be searched, or others like them; named each time: no text stands for yours
    c.text_column = ""
    c.text_role = "document"  # passages are asked and read by the prompt that a search puts before them
    c.pairs = ""  # questions are shorter than passages and worded otherwise, so the student reads some; their positives too, without labels
    c.augment = "spans:2"  # runs of words of every text, as short as questions (docs/results/search.md)
    c.max_length = 256  # a passage has more tokens than a sentence: with 128 the end of many is never read
    if variant in OWN:
        c.optimizer = "muon"  # as the students of docs/results/search.md had it; beside AdamW no file has it
        c.batch_size = 128
        c.learning_rate = 1e-3
        c.epochs = 3.0  # above one pass of another text on astronomy, 1.7 and 0.7 points; not told apart (docs/results/search.md)
    c.index_by = "teacher"  # passages are encoded once, at leisure; the small model saves its time on the questions
    c.index_texts = 1_000_000  # all passages, up to what an exact index holds in memory (1.5 GB at 384 dimensions)
    return base.apply_variant(c, variant, VARIANTS, "configs/search.py")
