// Quantised activations for AVX2: [token][group] of these, 44 bytes each. Four of the int8 are one broadcast.
#pragma once
#include "camshaft/view.h"

namespace camshaft::avx2 {

struct ActGroup {
  int8_t q[kGroup];
  float d, sum;
  int32_t isum;  // of q: what unsigned weights have to give back for their offset
};
static_assert(sizeof(ActGroup) == 44);

}  // namespace camshaft::avx2
