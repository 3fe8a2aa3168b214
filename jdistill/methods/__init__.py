"""The methods by name: one file per paper, one line here."""

from jdistill.methods import simtde

METHODS = {"simtde": simtde.build}
