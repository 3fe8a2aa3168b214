"""NomicBERT: module, config by two sets of keys, names, ONNX, and how a student is cut from one."""

from jdistill.models.nomicbert.architecture import NomicBertArchitecture
from jdistill.models.nomicbert.config import NomicBertConfig
from jdistill.models.nomicbert.module import NomicBert

__all__ = ["NomicBert", "NomicBertArchitecture", "NomicBertConfig"]
