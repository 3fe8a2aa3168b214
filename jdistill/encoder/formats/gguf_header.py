"""The header of a GGUF file, walked before anything is made of it: every count and length is held against the bytes that follow."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from jdistill.core.errors import UserError
from jdistill.data.text.readers import regular

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a value, by the type's number
STRING, ARRAY = 8, 9
MOST_DIMENSIONS = 4


def check_header(path: Path) -> None:
    """Raises UserError where the file is none of the format or cut short, or a count in it says more than the file can hold: a reader
    that believes it would go on for years."""
    regular(path)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _Walk(data, path).header()
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise UserError(
            f"{path} cannot be read ({error}); it is truncated or not a GGUF file: fetch it again"
        ) from None


class _Walk:
    """A place in the file, from which values are read in turn."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path, self.at = data, path, 0

    def header(self) -> None:
        if self.data[:4] != b"GGUF":
            raise self.fault("it does not begin with GGUF")
        self.at = 4
        if (version := self.number("<I", "version")) not in (2, 3):
            raise self.fault(f"version {version} is not read, only 2 and 3, little-endian")
        tensors, fields = self.number("<Q", "tensor count"), self.number("<Q", "field count")
        for i in range(self.held(fields, 13, "fields")):  # a length, a type and a value at least
            name = self.string(f"field {i}")
            self.value(self.number("<I", f"the field {name}"), name)
        for i in range(self.held(tensors, 24, "tensors")):
            name = self.string(f"tensor {i}")
            dimensions = self.number("<I", name)
            if not 1 <= dimensions <= MOST_DIMENSIONS:
                raise self.fault(f"tensor {name} has {dimensions} dimensions")
            self.skip(8 * dimensions + 4 + 8, name)

    def value(self, kind: int, name: str) -> None:
        """Goes over a field's value."""
        if kind == STRING:
            self.skip(self.number("<Q", name), name)
        elif kind == ARRAY:
            inner, count = self.number("<I", name), self.number("<Q", name)
            if inner == STRING:
                for _ in range(self.held(count, 8, f"entries of {name}")):
                    self.skip(self.number("<Q", name), name)
            elif inner in SIZES:
                self.skip(SIZES[inner] * count, name)
            else:
                raise self.fault(f"the field {name} is a list of type {inner}, which is not read")
        elif kind in SIZES:
            self.skip(SIZES[kind], name)
        else:
            raise self.fault(f"the field {name} is of type {kind}, which there is not")

    def number(self, form: str, name: str) -> int:
        start = self.at
        self.skip(struct.calcsize(form), name)
        return int(struct.unpack_from(form, self.data, start)[0])

    def string(self, name: str) -> str:
        length = self.number("<Q", name)
        start = self.at
        self.skip(length, name)
        return ascii(self.data[start : self.at][:100].decode("utf-8", "replace"))

    def held(self, count: int, least: int, what: str) -> int:
        """The count, which at `least` bytes each fits into what is left of the file."""
        if count * least > len(self.data) - self.at:
            raise self.fault(f"it tells of {count} {what}, more than it can hold")
        return count

    def skip(self, size: int, name: str) -> None:
        if size > len(self.data) - self.at:
            raise self.fault(f"{name} ends beyond the file's end")
        self.at += size

    def fault(self, what: str) -> UserError:
        return UserError(f"{self.path} cannot be read ({what!s}); it is truncated or not a GGUF file: fetch it again")
