"""The encoder of T5, of sentence-t5 and gtr-t5: module, config, names, ONNX, and how a student is cut from one."""

from jdistill.models.t5.architecture import T5Architecture
from jdistill.models.t5.config import T5Config
from jdistill.models.t5.module import T5Encoder

__all__ = ["T5Architecture", "T5Config", "T5Encoder"]
