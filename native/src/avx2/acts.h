// Quantised activations for AVX2: [token][group] of ActGroup, 44 bytes each. Four of the int8 are one broadcast. Behind them, for sparse
// products, [token][word] of 64-bit masks: which groups are not all zero.
#pragma once
#include <cstring>
#include "camshaft/view.h"

namespace camshaft::avx2 {

struct ActGroup {
  int8_t q[kGroup];
  float d, sum;
  int32_t isum;  // of q: what unsigned weights have to give back for their offset
};
static_assert(sizeof(ActGroup) == 44);

inline int mask_words(int groups) { return ceil_div(groups, 64); }
// Where a token's masks lie; unaligned.
inline size_t mask_offset(int token, int tokens, int groups) {
  return size_t(tokens) * size_t(groups) * sizeof(ActGroup) + size_t(token) * size_t(mask_words(groups)) * sizeof(uint64_t);
}
inline uint64_t load_mask(const uint8_t* p) {
  uint64_t mask;
  std::memcpy(&mask, p, sizeof mask);
  return mask;
}

}  // namespace camshaft::avx2
