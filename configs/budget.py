"""A student by what it may cost: megabytes of weights, milliseconds a text on this machine.

Method: SimTDE (configs/simtde.py). The shape is chosen from a menu, the largest that fits, before anything else begins
(docs/budget.md).

    python -m jdistill.main --config configs/budget.py --workdir runs/budget \\
        --config.teacher=FOLDER --config.text=sentences.txt.gz --config.budget.mb=30 --config.budget.ms=3

Cost: a second or two for each shape that is timed; then as its parent's run. Variants:

    search    trained for search in its teacher's space, as configs/search.py
"""

from ml_collections import ConfigDict

from configs import base, search, simtde

VARIANTS: dict[str, dict[str, object]] = {
    "": {},
    # As the menu was measured, whose promises are of these students.
    "search": {"student.copy_layers": "last", "student.vocabulary": "24000", "student.start": "weighted"},
}


def get_config(variant: str = "") -> ConfigDict:
    c = search.get_config() if variant == "search" else simtde.get_config("thin")  # whose start serves whole layers too

    c.budget = ConfigDict()
    c.budget.mb = 40.0  # megabytes (10^6 bytes) of the exported weights; 0: no limit
    c.budget.ms = (
        0.0  # milliseconds, the median of the texts one at a time, tokenisation included, on this machine; 0: no limit
    )
    c.budget.dim = 0  # width of the vectors; 0: the teacher's, the only one that SimTDE's students have
    c.budget.runtime = "onnx"  # in which the student will run on the CPU: onnx or torch (the torch extra)
    c.budget.precision = "float32"  # of its weights there: float32 or int8

    c.student.layers = 0  # the budget chooses; a value of yours is refused
    c.student.embedding_size = 0  # likewise
    c.student.intermediate_size = 0  # likewise

    return base.apply_variant(c, variant, VARIANTS, "configs/budget.py")
