// ref's quantised activations: [token][group].
#pragma once
#include "camshaft/view.h"

namespace camshaft::ref {

struct ActGroup {
  float d, sum;
  int8_t q[kGroup];
  int tower;  // its place in the group, or -1
  float tower_x;
};

}  // namespace camshaft::ref
