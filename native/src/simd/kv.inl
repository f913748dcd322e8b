// kv_write over V16: conversion by vector, places of transposed elements one by one.
#include "../fixed.h"
#include "../kernels_decl.h"
#include "vec.h"

namespace camshaft::CAMSHAFT_ISA {
namespace {

inline void convert(V16 v, float* to) { store(to, v); }
inline void convert(V16 v, uint16_t* to) { store_bf16(to, v); }

// Token `lane` of a sub-block, one head: K goes a sub-block's width apart, V in a row.
template <class T> void put_floats(const float* k_in, const float* v_in, int dim, int lane, T* k, T* v) {
  k += lane, v += lane * dim;
  for_lanes(dim, [&](int d, int lanes) {
    T words[kLanes];
    convert(load_up_to(k_in + d, lanes), words);
    for (int i = 0; i < lanes; i++) k[(d + i) * kSubBlock] = words[i];
    if (lanes == kLanes) return convert(load(v_in + d), v + d);
    convert(load_n(v_in + d, lanes), words);
    for (int i = 0; i < lanes; i++) v[d + i] = words[i];
  });
}

// One head's vector as integers with one step. put(d, bytes, n): the n integers from d on, n being even; those past the end are zero.
template <class Put> void put_bytes(const float* x, int dim, int lane, int8_t* sub_block, Put put) {
  Sums bits = zero_sums();
  for_lanes(dim, [&](int d, int lanes) { bits = max_bits(bits, load_up_to(x + d, lanes)); });
  const float most = hmax_bits(bits);
  const uint16_t step = byte_step(most);
  const V16 inverse = set1(byte_inverse(most, bf16_to_f32(step)));
  for_lanes(dim, [&](int d, int lanes) {
    int8_t bytes[kLanes];
    store_bytes(bytes, min(mul(load_up_to(x + d, lanes), inverse), set1(kByteLevels)));
    put(d, bytes, lanes + lanes % 2);
  });
  reinterpret_cast<uint16_t*>(sub_block + kSubBlock * (dim + dim % 2))[lane] = step;
}

void put_int8(const float* k_in, const float* v_in, int dim, int lane, int8_t* k, int8_t* v) {
  put_bytes(k_in, dim, lane, k, [&](int d, const int8_t* bytes, int n) {
    for (int i = 0; i < n; i += 2) __builtin_memcpy(k + (d + i) * kSubBlock + 2 * lane, bytes + i, 2);
  });
  // Two tokens share a row of V and may be written by two threads: each touches its own bytes only.
  int8_t* row = v + lane / 2 * 2 * (dim + dim % 2) + lane % 2;
  put_bytes(v_in, dim, lane, v, [&](int d, const int8_t* bytes, int n) {
    for (int i = 0; i < n; i++) row[2 * (d + i)] = bytes[i];
  });
}

}  // namespace

void kv_write(const KvWriteArgs& a, int pos, const float* k, const float* v) {
  const KvLayer& kv = a.kv;
  const int token = pos % kv.block_size, lane = token % kSubBlock, dim = kv.head_dim;
  size_t at = static_cast<size_t>(a.table[pos / kv.block_size]) * kv.block_bytes + static_cast<size_t>(token / kSubBlock) * kv.sub_block_bytes();
  for (int h = 0; h < kv.n_kv_heads; h++, k += dim, v += dim, at += kv.head_bytes()) {
    uint8_t *to_k = kv.k + at, *to_v = kv.v + at;
    if (kv.type == KvType::f32)
      put_floats(k, v, dim, lane, reinterpret_cast<float*>(to_k), reinterpret_cast<float*>(to_v));
    else if (kv.type == KvType::bf16)
      put_floats(k, v, dim, lane, reinterpret_cast<uint16_t*>(to_k), reinterpret_cast<uint16_t*>(to_v));
    else
      put_int8(k, v, dim, lane, reinterpret_cast<int8_t*>(to_k), reinterpret_cast<int8_t*>(to_v));
  }
}

}  // namespace camshaft::CAMSHAFT_ISA
