"""A model file's weights as float arrays, for the numpy executors: float types, Q8_0 and Q4_1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from camshaft.formats.dtypes import to_float32
from camshaft.formats.model import ModelFile
from camshaft.formats.tensors import Tensor
from graph_numpy import Array, Weights


def float_weights(model: ModelFile) -> Weights:
    """By canonical name: matrices [outputs, inputs] with their rows in order, and vectors."""

    def weight(name: str) -> Array:
        if len(model.info(name).shape) == 1:
            return model.vector(name)
        tensor = model.tensor(name)
        values = _values(tensor).reshape(tensor.rows, tensor.cols)
        return values if tensor.row_order is None else values[tensor.row_order]

    return weight


def _values(tensor: Tensor) -> NDArray[np.float32]:
    if tensor.type == 8:  # Q8_0: a half-precision scale, 32 int8
        blocks = tensor.data.reshape(-1, 34)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        return scale * blocks[:, 2:].copy().view(np.int8)
    if tensor.type == 3:  # Q4_1: scale, minimum, 16 bytes of which the low nibbles are the first half
        blocks = tensor.data.reshape(-1, 20)
        scale, low = (blocks[:, i : i + 2].copy().view(np.float16).astype(np.float32) for i in (0, 2))
        nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
        return scale * nibbles + low
    return to_float32(tensor.type, tensor.data, tensor.name)
