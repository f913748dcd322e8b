// ref's quantised activations: [token][group] of these.
#pragma once
#include "camshaft/view.h"

namespace camshaft::ref {

struct ActGroup {
  float d, sum;
  int8_t q[kGroup];
};

}  // namespace camshaft::ref
