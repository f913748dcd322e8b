// Packed matrices and activations for the linear kernels' tests and benchmark.
#pragma once
#include <cstdlib>
#include <memory>
#include <vector>

#include "../src/forms/layout.h"
#include "camshaft/ops.h"
#include "random.h"

namespace camshaft::test {

struct Free {
  void operator()(uint8_t* p) const { std::free(p); }
};

// 64-byte aligned bytes, exactly as many as asked for but for rounding up to a line.
inline std::unique_ptr<uint8_t, Free> aligned_bytes(size_t n) {
  return std::unique_ptr<uint8_t, Free>(static_cast<uint8_t*>(std::aligned_alloc(kAlign, round_up(n, kAlign))));
}

struct Matrix {
  std::unique_ptr<uint8_t, Free> bytes;
  Packed w;
};

inline void fill_halves(uint16_t* p, size_t n, float scale, Random& random) {
  for (size_t i = 0; i < n; i++) p[i] = f32_to_f16(random.uniform(-scale, scale));
}
inline void fill_bytes(void* p, size_t n, Random& random) {
  for (size_t i = 0; i < n; i++) static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(random.bits());
}

inline void fill(TileQ4& t, Random& random) {
  fill_bytes(t.u, sizeof t.u, random);
  fill_halves(t.d, kRowTile, 0.01f, random), fill_halves(t.m, kRowTile, 0.1f, random);
}
inline void fill(TileQ4s& t, Random& random) {
  fill_bytes(t.u, sizeof t.u, random);
  fill_halves(t.d, kRowTile, 0.01f, random);
}
inline void fill(TileQ5& t, Random& random) {
  fill_bytes(t.u, sizeof t.u, random), fill_bytes(t.high, sizeof t.high, random);
  fill_halves(t.d, kRowTile, 0.01f, random), fill_halves(t.m, kRowTile, 0.1f, random);
}
inline void fill(TileQ8& t, Random& random) {
  fill_bytes(t.s, sizeof t.s, random);
  fill_halves(t.d, kRowTile, 0.001f, random);
}
inline void fill(TileQ8h& t, Random& random) {
  fill_bytes(t.s, sizeof t.s, random);
  fill_halves(t.d[0], 2 * kRowTile, 0.001f, random);
}
inline void fill(TileBf16& t, Random& random) {
  for (auto& lanes : t.w)
    for (uint16_t& w : lanes) w = f32_to_bf16(random.uniform(-1, 1));
}
inline void fill(TileF16& t, Random& random) { fill_halves(t.w[0], kGroup * kRowTile, 1.0f, random); }
inline void fill(TileF32& t, Random& random) {
  for (auto& lanes : t.w)
    for (float& w : lanes) w = random.uniform(-1, 1);
}

template <class Tile>
void fill_all(uint8_t* bytes, int n_tiles, Random& random) {
  for (int i = 0; i < n_tiles; i++) fill(reinterpret_cast<Tile*>(bytes)[i], random);
}

// Any bytes that a form can hold, the padding's too: a kernel may not rely on zeros there but through zero activations.
inline Matrix random_matrix(Form form, int rows, int cols, Random& random) {
  Matrix out{aligned_bytes(packed_bytes(form, rows, cols)), {form, rows, cols, nullptr}};
  out.w.data = out.bytes.get();
  const int n = out.w.tiles() * out.w.groups();
  switch (form) {
    case Form::q4: fill_all<TileQ4>(out.bytes.get(), n, random); break;
    case Form::q4s: fill_all<TileQ4s>(out.bytes.get(), n, random); break;
    case Form::q5: fill_all<TileQ5>(out.bytes.get(), n, random); break;
    case Form::q8: fill_all<TileQ8>(out.bytes.get(), n, random); break;
    case Form::q8h: fill_all<TileQ8h>(out.bytes.get(), n, random); break;
    case Form::bf16: fill_all<TileBf16>(out.bytes.get(), n, random); break;
    case Form::f16: fill_all<TileF16>(out.bytes.get(), n, random); break;
    case Form::f32: fill_all<TileF32>(out.bytes.get(), n, random); break;
  }
  return out;
}

// Rows of activations, padded with zeros to whole groups as the float kernels want them, and quantised by `kernels`.
struct Inputs {
  std::vector<float> values;
  int tokens, cols, stride;
  Inputs(int n_tokens, int n_cols, Random& random) : tokens(n_tokens), cols(n_cols), stride(ceil_div(n_cols, kGroup) * kGroup) {
    values.assign(size_t(tokens) * size_t(stride), 0.0f);
    for (int t = 0; t < tokens; t++)
      for (int k = 0; k < cols; k++) values[size_t(t) * size_t(stride) + size_t(k)] = random.uniform(-2, 2);
  }
  Rows rows() { return {values.data(), stride}; }
  std::unique_ptr<uint8_t, Free> quantised(const Kernels& kernels) {
    auto acts = aligned_bytes(kernels.acts_bytes(tokens, cols));
    for (int t = 0; t < tokens; t += kActUnit) kernels.quantize(rows(), cols, t, t + kActUnit < tokens ? t + kActUnit : tokens, tokens, acts.get());
    return acts;
  }
};

}  // namespace camshaft::test
