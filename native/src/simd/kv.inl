// kv_write over V16: conversion by vector, K's transposed places by element.
#include "../kernels_decl.h"
#include "vec.h"

namespace camshaft::CAMSHAFT_ISA {
namespace {

inline void convert(V16 v, float* to) { store(to, v); }
inline void convert(V16 v, uint16_t* to) { store_bf16(to, v); }

// One head's vector: `v` gets it contiguous, `k` (at the token's lane of the first dimension) a sub-block's width apart.
template <class T> void put_head(const float* k_in, const float* v_in, int dim, T* k, T* v) {
  for_lanes(dim, [&](int d, int lanes) {
    T words[kLanes];
    convert(load_up_to(k_in + d, lanes), words);
    for (int i = 0; i < lanes; i++) k[(d + i) * kSubBlock] = words[i];
    if (lanes == kLanes) return convert(load(v_in + d), v + d);
    convert(load_n(v_in + d, lanes), words);
    for (int i = 0; i < lanes; i++) v[d + i] = words[i];
  });
}

template <class T> void put(const KvWriteArgs& a, int pos, const float* k, const float* v) {
  const KvLayer& kv = a.kv;
  const size_t block = static_cast<size_t>(a.table[pos / kv.block_size]) * kv.block_bytes;
  const int token = pos % kv.block_size, dim = kv.head_dim;
  for (int h = 0; h < kv.n_kv_heads; h++) {
    const ptrdiff_t head = static_cast<ptrdiff_t>(h) * kv.block_size * dim;
    T* to_k = reinterpret_cast<T*>(kv.k + block) + head + token / kSubBlock * kSubBlock * dim + token % kSubBlock;
    T* to_v = reinterpret_cast<T*>(kv.v + block) + head + token * dim;
    put_head(k + static_cast<ptrdiff_t>(h) * dim, v + static_cast<ptrdiff_t>(h) * dim, dim, to_k, to_v);
  }
}

}  // namespace

void kv_write(const KvWriteArgs& a, int pos, const float* k, const float* v) {
  if (a.kv.type == KvType::f32)
    put<float>(a, pos, k, v);
  else
    put<uint16_t>(a, pos, k, v);
}

}  // namespace camshaft::CAMSHAFT_ISA
