#include "../simd/vec256.h"
// The width comes first.
#include "../simd/quantize.inl"
#include "acts.h"
#include "kernels_decl.h"

namespace camshaft::avx2 {
namespace {

void put(const QuantisedGroup& from, ActGroup& to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.q), from.q);
  to.d = from.d;
  to.sum = from.sum;
  to.minus8 = -8 * (from.sums[0] + from.sums[1]);
}

}  // namespace

size_t acts_bytes(int tokens, int cols) { return ActLayout{tokens, ceil_div(cols, kGroup)}.bytes(); }

void quantize(Rows x, int cols, int t_begin, int t_end, int tokens, uint8_t* acts) {
  const ActLayout at{tokens, ceil_div(cols, kGroup)};
  for_groups(x, cols, t_begin, t_end, at.towers(), acts + at.towers_at(), [&](int t) {
    return [to = at.groups_of(acts, t)](int g, const QuantisedGroup& from) { put(from, to[g]); };
  });
}

}  // namespace camshaft::avx2
