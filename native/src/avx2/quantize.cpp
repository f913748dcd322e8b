#include "../simd/vec256.h"
// The width comes first.
#include "../simd/quantize.inl"
#include "acts.h"
#include "kernels_decl.h"

namespace camshaft::avx2 {

size_t acts_bytes(int tokens, int cols) { return mask_offset(tokens, tokens, ceil_div(cols, kGroup)); }

void quantize(Rows x, int cols, int t_begin, int t_end, int tokens, uint8_t* acts) {
  const int groups = ceil_div(cols, kGroup);
  for_groups(x, cols, t_begin, t_end, [&](int t, int g, const QuantisedGroup& from) {
    ActGroup& to = reinterpret_cast<ActGroup*>(acts)[int64_t(t) * groups + g];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.q), from.q);
    to.d = from.d;
    to.isum = from.sums[0] + from.sums[1];
    to.sum = from.d * static_cast<float>(to.isum);
    uint8_t* mask = acts + mask_offset(t, tokens, groups) + size_t(g / 64) * sizeof(uint64_t);
    const uint64_t known = g % 64 ? load_mask(mask) : 0, bits = known | uint64_t(from.d != 0) << (g % 64);
    std::memcpy(mask, &bits, sizeof bits);
  });
}

void quantize_rest(Rows x, int cols, int t_begin, int t_end, Rows rest) { rest_of_tokens(x, cols, t_begin, t_end, rest); }

}  // namespace camshaft::avx2
