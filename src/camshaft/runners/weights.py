"""A model file's tensors as a native builder's ids: each packed or mapped once, however many nodes read it, and accounted for."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from camshaft import _native
from camshaft.errors import ModelError
from camshaft.formats.dtypes import BF16, F16, F32
from camshaft.formats.model import ModelFile
from camshaft.formats.spec import RopeSpec
from camshaft.runners.pack_file import Pack
from camshaft.runners.rope import inv_freq

_FLOATS = frozenset({F32, F16, BF16})


class Matrix(NamedTuple):
    """A packed matrix: its id in the builder, the native name of its form, its shape."""

    id: int
    form: str
    rows: int
    cols: int


class Weights:
    """`quantize` is none, q8 or q4, and applies to float matrices alone. Matrices that `pack` has are taken from there.

    With q4 the embedding and the head take q8: an error there goes straight into the logits.
    """

    def __init__(self, file: ModelFile, builder: _native.Builder, quantize: str, max_positions: int, pack: Pack | None = None) -> None:
        self._file = file
        self._builder = builder
        self._quantize = quantize
        self._max_positions = max_positions
        self._pack = pack
        self.matrices: dict[str, Matrix] = {}
        self.n_packed = 0  # matrices that were packed here
        self._vectors: dict[str, int] = {}
        self._ropes: dict[RopeSpec, int] = {}

    def matrix(self, name: str, rows: int, cols: int) -> int:
        """Packs tensor `name`, on first use. Raises ModelError where its shape is not [rows, cols]."""
        if name not in self.matrices:
            info = self._file.info(name)
            if info.shape != (rows, cols):
                raise ModelError(f"tensor {name} is {list(info.shape)}, but the network needs [{rows}, {cols}]")
            asked = self._form(name, info.type)
            form = asked or _native.form_name(info.type)
            found = self._pack.find(name, form, rows, cols) if self._pack is not None else None
            if self._pack is not None and found is not None:
                id = self._builder.mapped_weight(self._pack.map, found.offset, form, rows, cols)
            else:
                tensor = self._file.tensor(name)
                id = self._builder.weight(tensor.type, rows, cols, tensor.data, tensor.row_order, asked)
                self.n_packed += 1
            self.matrices[name] = Matrix(id, form, rows, cols)
        return self.matrices[name].id

    def vector(self, name: str, n: int) -> int:
        """A norm's weight or a bias. Raises ModelError where it does not have `n` elements."""
        if name not in self._vectors:
            vector = self._file.vector(name)
            if vector.shape != (n,):
                raise ModelError(f"tensor {name} is {list(vector.shape)}, but the network needs [{n}]")
            self._vectors[name] = self._builder.vector(vector)
        return self._vectors[name]

    def rope(self, rope: RopeSpec) -> int:
        """The table of this rotary embedding."""
        if rope not in self._ropes:
            self._ropes[rope] = self._builder.rope_table(inv_freq(rope), self._max_positions)
        return self._ropes[rope]

    @property
    def forms(self) -> dict[str, int]:
        """Matrices by packed form."""
        return dict(Counter(m.form for m in self.matrices.values()))

    def _form(self, name: str, type: int) -> str:
        if self._quantize == "none" or type not in _FLOATS:
            return ""
        return "q8" if name in ("embed", "head") else self._quantize
