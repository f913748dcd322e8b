// vpdpbusd: 64 products and their sums in one instruction.
#include "roofline.h"

#include <immintrin.h>

namespace camshaft {
namespace {

constexpr int kChains = 12;  // enough independent sums to hide the latency of each

int run(int rounds, int seed) {
  __m512i sums[kChains];
  for (__m512i& s : sums) s = _mm512_setzero_si512();
  const __m512i w = _mm512_set1_epi8(3);
  __m512i x = _mm512_set1_epi8(char(seed));
  for (int r = 0; r < rounds; ++r) {
    asm volatile("" : "+v"(x));  // keeps the compiler from computing the round once
    for (__m512i& s : sums) {
      s = _mm512_dpbusd_epi32(s, w, x);
      asm volatile("" : "+v"(s));
    }
  }
  __m512i all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_add_epi32(all, sums[i]);
  int lanes[16], total = 0;
  _mm512_storeu_si512(lanes, all);
  for (int lane : lanes) total += lane;
  return total;
}

}  // namespace

DotLoop dot_loop_avx512() { return {run, 2.0 * 64 * kChains}; }

}  // namespace camshaft
