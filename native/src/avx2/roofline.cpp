// vpmaddubsw, vpmaddwd and an addition: three instructions for 32 products, as the AVX2 kernels do it.
#include "roofline.h"

#include <immintrin.h>

namespace camshaft {
namespace {

constexpr int kChains = 8;  // enough independent sums to hide the latency of each

int run(int rounds, int seed) {
  __m256i sums[kChains];
  for (__m256i& s : sums) s = _mm256_setzero_si256();
  const __m256i ones = _mm256_set1_epi16(1), w = _mm256_set1_epi8(3);
  __m256i x = _mm256_set1_epi8(char(seed));
  for (int r = 0; r < rounds; ++r) {
    asm volatile("" : "+x"(x));  // keeps the compiler from computing the round once
    for (__m256i& s : sums) s = _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
    asm volatile("" : "+x"(sums[0]), "+x"(sums[1]), "+x"(sums[2]), "+x"(sums[3]), "+x"(sums[4]), "+x"(sums[5]), "+x"(sums[6]), "+x"(sums[7]));
  }
  __m256i all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm256_add_epi32(all, sums[i]);
  return _mm256_extract_epi32(all, 0);
}

}  // namespace

DotLoop dot_loop_avx2() { return {run, 2.0 * 32 * kChains}; }

}  // namespace camshaft
