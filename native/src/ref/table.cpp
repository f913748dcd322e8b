// The scalar twins: they define every result, on every machine.
#include "table.h"

namespace camshaft {

const Kernels& kernels_ref() {
  static const Kernels table = CAMSHAFT_TABLE(ref);
  return table;
}

}  // namespace camshaft
