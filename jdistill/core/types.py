"""What an array and a tree of arrays are called."""

from __future__ import annotations

from typing import Any

import jax

Array = jax.Array
Tree = Any
