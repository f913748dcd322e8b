// Scalar twin of kv_write.
#include "../kernels_decl.h"
#include "fixed.h"

namespace camshaft::ref {
namespace {

// One head's K and V of token `lane` of a sub-block.
template <class T, class Convert> void put_floats(const float* k, const float* v, int dim, int lane, uint8_t* to_k, uint8_t* to_v, Convert convert) {
  for (int d = 0; d < dim; d++) {
    reinterpret_cast<T*>(to_k)[d * kSubBlock + lane] = convert(k[d]);
    reinterpret_cast<T*>(to_v)[lane * dim + d] = convert(v[d]);
  }
}

// at(d): where the d-th integer goes, of `even` with the padding.
template <class At> void put_bytes(const float* x, int dim, int lane, uint8_t* to, At at) {
  const int even = dim + dim % 2;
  const float most = largest(x, dim);
  const uint16_t step = byte_step(most);
  const float inverse = byte_inverse(most, bf16_to_f32(step));
  for (int d = 0; d < even; d++) reinterpret_cast<int8_t*>(to)[at(d)] = static_cast<int8_t>(d < dim ? to_level(x[d], inverse, kByteLevels) : 0);
  reinterpret_cast<uint16_t*>(to + kSubBlock * even)[lane] = step;
}

}  // namespace

void kv_write(const KvWriteArgs& a, int pos, const float* k, const float* v) {
  const KvLayer& kv = a.kv;
  const int token = pos % kv.block_size, lane = token % kSubBlock, dim = kv.head_dim, even = dim + dim % 2;
  size_t at = static_cast<size_t>(a.table[pos / kv.block_size]) * kv.block_bytes + static_cast<size_t>(token / kSubBlock) * kv.sub_block_bytes();
  for (int h = 0; h < kv.n_kv_heads; h++, k += dim, v += dim, at += kv.head_bytes()) {
    uint8_t *to_k = kv.k + at, *to_v = kv.v + at;
    if (kv.type == KvType::f32) {
      put_floats<float>(k, v, dim, lane, to_k, to_v, [](float x) { return x; });
    } else if (kv.type == KvType::bf16) {
      put_floats<uint16_t>(k, v, dim, lane, to_k, to_v, f32_to_bf16);
    } else {
      put_bytes(k, dim, lane, to_k, [&](int d) { return (d / 2 * kSubBlock + lane) * 2 + d % 2; });
      put_bytes(v, dim, lane, to_v, [&](int d) { return (lane / 2 * even + d) * 2 + lane % 2; });
    }
  }
}

}  // namespace camshaft::ref
