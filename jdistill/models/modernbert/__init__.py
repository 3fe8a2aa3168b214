"""ModernBERT: module, config, names, ONNX, and how a student is cut from one."""

from jdistill.models.modernbert.architecture import ModernBertArchitecture
from jdistill.models.modernbert.config import GLOBAL, LOCAL, ModernBertConfig
from jdistill.models.modernbert.module import ModernBert

__all__ = ["GLOBAL", "LOCAL", "ModernBert", "ModernBertArchitecture", "ModernBertConfig"]
