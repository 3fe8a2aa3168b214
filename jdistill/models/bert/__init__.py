"""BERT, RoBERTa, DistilBERT and ELECTRA: module, config, names, ONNX, and how a student is cut from one."""

from jdistill.models.bert.architecture import BertArchitecture
from jdistill.models.bert.config import ACTIVATIONS, BertConfig
from jdistill.models.bert.module import Bert

__all__ = ["ACTIVATIONS", "Bert", "BertArchitecture", "BertConfig"]
