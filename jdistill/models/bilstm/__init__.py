"""A bidirectional LSTM over word embeddings: module, files, ONNX."""

from jdistill.models.bilstm.architecture import BilstmArchitecture
from jdistill.models.bilstm.config import DIRECTIONS, BilstmConfig
from jdistill.models.bilstm.module import Bilstm

__all__ = ["DIRECTIONS", "Bilstm", "BilstmArchitecture", "BilstmConfig"]
