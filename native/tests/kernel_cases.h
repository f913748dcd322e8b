// The shapes that kernel tests and benchmarks run: one table for each family of kernels, linear's are in cases.h.
#pragma once
#include "camshaft/ops.h"

namespace camshaft::test {

// Row lengths: shorter than a vector, a vector, tails on both sides of half a vector, real models' widths.
constexpr int kLengths[] = {1, 3, 7, 8, 9, 15, 16, 17, 24, 31, 33, 64, 100, 172, 576, 640, 1536};

struct RopeCase {
  int n_heads, head_dim, half;
};
constexpr RopeCase kRopeCases[] = {{1, 2, 1},   {2, 4, 2},   {8, 8, 4},   {3, 24, 12},   {2, 32, 16},
                                   {9, 64, 32}, {4, 80, 40}, {2, 96, 32}, {4, 256, 128}, {2, 64, 8}};

struct AttnCase {
  int n_heads, n_kv_heads, head_dim, block_size;
  KvType type;
  int window;
  float softcap;
  int start, n_new;
};
constexpr KvType kF32 = KvType::f32, kBf16 = KvType::bf16, kInt8 = KvType::int8;
// One layer of one block, K or V.
inline size_t block_bytes(const AttnCase& c) {
  return static_cast<size_t>(c.n_kv_heads) * static_cast<size_t>(c.block_size / kSubBlock) * kv_sub_block_bytes(c.type, c.head_dim);
}
constexpr AttnCase kAttnCases[] = {
    // every head size, with a tail of lanes and without
    {1, 1, 4, 16, kF32, 0, 0, 0, 20},
    {2, 1, 4, 16, kBf16, 0, 0, 3, 20},
    {8, 4, 8, 16, kF32, 0, 0, 0, 70},
    {8, 4, 8, 32, kBf16, 0, 0, 61, 9},
    {3, 1, 24, 16, kBf16, 0, 0, 10, 33},
    {4, 2, 32, 32, kF32, 0, 0, 5, 90},
    {4, 2, 40, 32, kBf16, 0, 0, 5, 90},
    {9, 3, 64, 32, kBf16, 0, 0, 0, 150},
    {9, 3, 64, 16, kF32, 0, 0, 37, 66},
    {4, 4, 80, 32, kBf16, 0, 0, 100, 31},
    {4, 4, 80, 64, kF32, 0, 0, 63, 2},
    {6, 2, 96, 16, kBf16, 0, 0, 64, 17},
    {8, 2, 128, 128, kBf16, 0, 0, 127, 20},
    {8, 2, 128, 64, kF32, 0, 0, 0, 65},
    {4, 1, 256, 32, kBf16, 0, 0, 15, 40},
    {4, 1, 256, 16, kF32, 0, 0, 200, 3},
    // every number of grouped heads around the micro-tile's 6 and the tile's 12 and 16
    {1, 1, 16, 16, kBf16, 0, 0, 300, 1},
    {2, 1, 16, 16, kF32, 0, 0, 300, 1},
    {3, 1, 16, 16, kBf16, 0, 0, 300, 1},
    {5, 1, 48, 16, kF32, 0, 0, 300, 1},
    {7, 1, 64, 32, kBf16, 0, 0, 257, 5},
    {12, 1, 32, 32, kF32, 0, 0, 257, 2},
    {13, 1, 32, 32, kBf16, 0, 0, 257, 1},
    {16, 1, 32, 64, kBf16, 0, 0, 257, 3},
    {17, 1, 32, 64, kF32, 0, 0, 70, 2},
    {71, 1, 64, 128, kBf16, 0, 0, 130, 1},
    // windows: of one token, inside a sub-block, across spans, wider than what there is; soft caps
    {2, 1, 32, 16, kF32, 1, 0, 0, 40},
    {3, 1, 32, 16, kBf16, 5, 0, 0, 100},
    {4, 1, 64, 32, kBf16, 64, 0, 0, 200},
    {4, 1, 64, 16, kF32, 100, 0, 250, 60},
    {4, 2, 64, 64, kBf16, 512, 0, 300, 30},
    {4, 2, 64, 128, kBf16, 4096, 0, 300, 7},
    {4, 2, 32, 32, kF32, 0, 50, 0, 80},
    {4, 2, 80, 32, kBf16, 33, 30, 90, 80},
    // int8: head sizes with every kind of tail, odd ones included, grouped heads, windows, a soft cap
    {1, 1, 1, 16, kInt8, 0, 0, 0, 20},
    {2, 1, 4, 16, kInt8, 0, 0, 3, 20},
    {3, 1, 7, 16, kInt8, 0, 0, 61, 9},
    {8, 4, 8, 32, kInt8, 0, 0, 61, 9},
    {3, 1, 24, 16, kInt8, 0, 0, 10, 33},
    {4, 2, 33, 32, kInt8, 0, 0, 5, 90},
    {4, 2, 40, 32, kInt8, 0, 0, 5, 90},
    {9, 3, 64, 32, kInt8, 0, 0, 0, 150},
    {9, 3, 64, 16, kInt8, 0, 0, 37, 66},
    {4, 4, 80, 64, kInt8, 0, 0, 63, 2},
    {6, 2, 96, 16, kInt8, 0, 0, 64, 17},
    {8, 2, 128, 128, kInt8, 0, 0, 127, 20},
    {4, 1, 256, 32, kInt8, 0, 0, 15, 40},
    {2, 1, 512, 32, kInt8, 0, 0, 90, 3},
    {5, 1, 48, 16, kInt8, 0, 0, 300, 1},
    {13, 1, 32, 32, kInt8, 0, 0, 257, 1},
    {16, 1, 32, 64, kInt8, 0, 0, 257, 3},
    {71, 1, 64, 128, kInt8, 0, 0, 130, 1},
    {2, 1, 32, 16, kInt8, 1, 0, 0, 40},
    {3, 1, 32, 16, kInt8, 5, 0, 0, 100},
    {4, 1, 64, 16, kInt8, 100, 0, 250, 60},
    {4, 2, 80, 32, kInt8, 33, 30, 90, 80},
};

}  // namespace camshaft::test
