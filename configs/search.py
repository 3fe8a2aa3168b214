"""A student for search in its teacher's space: it reads the questions, and the index is the teacher's own.

Method: SimTDE (configs/simtde.py), whose sentence loss leaves the student at its teacher's very vectors; asked this way
round after LEAF (Vujanic and Rueckstiess 2025).

    python -m jdistill.main --config configs/search.py --workdir runs/search \\
        --config.teacher=FOLDER --config.text=passages.txt.gz --config.pairs=pairs.jsonl --config.dev_retrieval=COLLECTIONS
    python -m jdistill.search --workdir runs/search "a question"

Without a variant the student is that of configs/simtde.py:thin with a token table of 160 for 24,000 pieces, trained by
Muon. Cost and figures: docs/results/search.md. The compute
type is bfloat16 where this machine is fast in it (dtype auto). Variants, --config configs/search.py:NAME, are those of
configs/simtde.py (of those whose students leave the teacher's space, kl, pair_mse and pair_mae, the teacher's index is
refused), and

    balanced   28,000 pieces of 112 numbers, for whose start rare tokens count more, and half as many inner neurons
               again: a percent and a half more parameters, nearer to the teacher after 300 steps, most on words
               that the text lacks (docs/results/search.md); run for the claim's 6,336 with one seed, not three
"""

from ml_collections import ConfigDict

from configs import base, simtde

OWN: dict[str, dict[str, object]] = {
    "": {"student.embedding_size": 160},
    "balanced": {
        "student.vocabulary": "28000",
        "student.embedding_size": 112,
        "student.intermediate_size": -2,
        "student.start": "tempered",
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
        # With 160 numbers a piece within noise of 128 for all pieces (docs/results/search.md); rare ones are read by their parts.
        c.student.vocabulary = "24000"
        c.optimizer = "muon"  # as the students of docs/results/search.md had it; beside AdamW no file has it
        c.batch_size = 128
        c.learning_rate = 1e-3
        c.epochs = 3.0  # above one pass of another text on astronomy, 1.7 and 0.7 points; not told apart (docs/results/search.md)
    c.index_by = "teacher"  # passages are encoded once, at leisure; the small model saves its time on the questions
    c.index_texts = 1_000_000  # all passages, up to what an exact index holds in memory (1.5 GB at 384 dimensions)
    return base.apply_variant(c, variant, VARIANTS, "configs/search.py")
