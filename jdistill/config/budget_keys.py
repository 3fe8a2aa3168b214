"""The keys of a budget, of configs that leave the student's shape to it: their ranges, and what is wrong with them together."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from jdistill.config.rules import Rule, at_least, one_of, whole_number

# Runtime and precision -> the form of an export (export.targets) that a budget is about.
BUDGET_FORMS = {
    ("onnx", "float32"): "onnx",
    ("onnx", "int8"): "onnx-int8",
    ("torch", "float32"): "sentence-transformers",
    ("torch", "int8"): "torch-int8",
}
BUDGET_METHODS = ("simtde",)  # whose students the menu has

BUDGET_KEYS: dict[str, Rule] = {
    "budget.mb": at_least(0),
    "budget.ms": at_least(0),
    "budget.dim": whole_number(0),
    "budget.runtime": one_of(dict.fromkeys(runtime for runtime, _ in BUDGET_FORMS)),
    "budget.precision": one_of(dict.fromkeys(precision for _, precision in BUDGET_FORMS)),
}


def budget_form(cfg: ConfigDict) -> str:
    """The form of an export that cfg.budget is about."""
    return BUDGET_FORMS[cfg.budget.runtime, cfg.budget.precision]


def budget_faults(values: dict[str, Any]) -> list[str]:
    """What is wrong with a budget whose keys are each in their range; nothing of a config that has none.

    Args:
      values: of the whole config, by dotted keys.
    """
    if not any(key.startswith("budget.") for key in values):
        return []
    if missing := [key for key in BUDGET_KEYS if key not in values]:
        return [f"--config.budget lacks {', '.join(missing)}; begin with configs/budget.py"]
    faults = []
    if not values["budget.mb"] and not values["budget.ms"]:
        faults.append(
            "--config.budget.mb=0: must be above 0 where --config.budget.ms is 0: what may the student weigh, or how long may a "
            "text take?"
        )
    if values.get("method") not in BUDGET_METHODS:
        faults.append(
            f"--config.method={values.get('method')}: a budget chooses students of {', '.join(BUDGET_METHODS)} only; take the "
            "method's own config, and set layers and widths yourself"
        )
    if values.get("student.hidden_size"):
        faults.append(
            f"--config.student.hidden_size={values['student.hidden_size']}: must be 0 with a budget, whose students' layers are as wide as "
            "their teacher's"
        )
    if (values["budget.runtime"], values["budget.precision"]) == ("onnx", "float32") and not values.get("onnx"):
        faults.append(
            "--config.onnx=False: must be True, since --config.budget.runtime=onnx is about the graph that it leaves out"
        )
    return faults
