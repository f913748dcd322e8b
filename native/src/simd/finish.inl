// How a product of 16 rows leaves the registers: bias, then residual; only the rows that there are.
#pragma once
#include "camshaft/ops.h"

namespace camshaft::CAMSHAFT_ISA {

inline void finish(const LinearArgs& a, int t, int tile, V16 v) {
  const int row = tile * kRowTile, n = a.w.rows - row;
  float* y = a.y[t] + row;
  if (n >= kRowTile) {
    if (a.bias) v = add(v, load(a.bias + row));
    if (a.accumulate) v = add(load(y), v);
    store(y, v);
  } else {
    if (a.bias) v = add(v, load_n(a.bias + row, n));
    if (a.accumulate) v = add(load_n(y, n), v);
    store_n(y, v, n);
  }
}

}  // namespace camshaft::CAMSHAFT_ISA
