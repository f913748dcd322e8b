"""A model file's weights as float arrays, for the numpy executors: float types only."""

from __future__ import annotations

import numpy as np

from camshaft.formats.dtypes import to_float32
from camshaft.formats.model import ModelFile
from graph_numpy import Array, Weights


def float_weights(model: ModelFile) -> Weights:
    """By canonical name: matrices [outputs, inputs] with their rows in order, and vectors."""

    def weight(name: str) -> Array:
        if len(model.info(name).shape) == 1:
            return model.vector(name)
        tensor = model.tensor(name)
        values = to_float32(tensor.type, tensor.data, name).reshape(tensor.rows, tensor.cols)
        return values if tensor.row_order is None else values[tensor.row_order]

    return weight


def same_weights(a: ModelFile, b: ModelFile) -> bool:
    """Whether two files hold the same network with the same numbers."""
    return a.names() == b.names() and all(np.array_equal(float_weights(a)(n), float_weights(b)(n)) for n in a.names())
