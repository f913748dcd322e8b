// ref's quantised activations: [token][group] of both planes.
#pragma once
#include "camshaft/view.h"

namespace camshaft::ref {

struct ActGroup {
  float d, sum;
  int8_t q[kGroup];
};
struct ActPlanes {
  ActGroup first, second;  // second.d is 0 where the second plane is empty
};

}  // namespace camshaft::ref
