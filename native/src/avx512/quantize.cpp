#include "../simd/vec512.h"
// The width comes first.
#include "../simd/quantize.inl"
#include "acts.h"
#include "kernels_decl.h"

namespace camshaft::avx512 {
namespace {

// Writes token k of a tile of n tokens; ActGroups<n> by hand, since n is known only here.
void put(const QuantisedGroup& from, uint8_t* group, int k, int n) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(group + k * kGroup), from.q);
  float* d = reinterpret_cast<float*>(group + n * kGroup);
  int32_t* minus = reinterpret_cast<int32_t*>(d + 2 * n);
  d[k] = from.d;
  d[n + k] = from.sum;
  minus[k] = -from.sums[0];
  minus[n + k] = -from.sums[1];
}

}  // namespace

size_t acts_bytes(int tokens, int cols) { return ActLayout{tokens, ceil_div(cols, kGroup)}.bytes(); }

void quantize(Rows x, int cols, int t_begin, int t_end, int tokens, uint8_t* acts) {
  const ActLayout at{tokens, ceil_div(cols, kGroup)};
  for_groups(x, cols, t_begin, t_end, at.towers(), acts + at.towers_at(), [&](int t) {
    const int first = t / kActTile * kActTile, n = tokens - first < kActTile ? tokens - first : kActTile;
    return [tile = acts + at.tile(first), k = t - first, n](int g, const QuantisedGroup& from) {
      put(from, tile + size_t(g) * size_t(n) * kActBytes, k, n);
    };
  });
}

}  // namespace camshaft::avx512
