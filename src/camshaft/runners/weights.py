"""A model file's tensors as a native builder's ids: each packed once, however many nodes read it, and accounted for."""

from __future__ import annotations

from collections import Counter

from camshaft import _native
from camshaft.errors import ModelError
from camshaft.formats.dtypes import BF16, F16, F32
from camshaft.formats.model import ModelFile
from camshaft.formats.spec import RopeSpec
from camshaft.runners.rope import inv_freq

_FLOATS = frozenset({F32, F16, BF16})


class Weights:
    """`quantize` is none, q8 or q4, and applies to float matrices alone.

    With q4 the embedding and the head take q8: an error there goes straight into the logits.
    """

    def __init__(self, file: ModelFile, builder: _native.Builder, quantize: str, max_positions: int) -> None:
        self._file = file
        self._builder = builder
        self._quantize = quantize
        self._max_positions = max_positions
        self._ids: dict[str, int] = {}
        self._ropes: dict[RopeSpec, int] = {}
        self._forms: Counter[str] = Counter()

    def matrix(self, name: str, rows: int, cols: int) -> int:
        """Packs tensor `name`, on first use. Raises ModelError where its shape is not [rows, cols]."""
        if name in self._ids:
            return self._ids[name]
        tensor = self._file.tensor(name)
        if (tensor.rows, tensor.cols) != (rows, cols):
            raise ModelError(f"tensor {name} is [{tensor.rows}, {tensor.cols}], but the network needs [{rows}, {cols}]")
        form = self._form(name, tensor.type)
        self._ids[name] = self._builder.weight(tensor.type, rows, cols, tensor.data, tensor.row_order, form)
        self._forms[form or _native.form_name(tensor.type)] += 1
        return self._ids[name]

    def vector(self, name: str, n: int) -> int:
        """A norm's weight or a bias. Raises ModelError where it does not have `n` elements."""
        if name not in self._ids:
            vector = self._file.vector(name)
            if vector.shape != (n,):
                raise ModelError(f"tensor {name} is {list(vector.shape)}, but the network needs [{n}]")
            self._ids[name] = self._builder.vector(vector)
        return self._ids[name]

    def rope(self, rope: RopeSpec) -> int:
        """The table of this rotary embedding."""
        if rope not in self._ropes:
            self._ropes[rope] = self._builder.rope_table(inv_freq(rope), self._max_positions)
        return self._ropes[rope]

    @property
    def forms(self) -> dict[str, int]:
        """Matrices by packed form."""
        return dict(self._forms)

    def _form(self, name: str, type: int) -> str:
        if self._quantize == "none" or type not in _FLOATS:
            return ""
        return "q8" if name in ("embed", "head") else self._quantize
