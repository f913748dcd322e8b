// The scalar twins: they define every result, on every machine. Declared plainly, not weakly: a missing one must not link.
#include "kernels_decl.h"
#undef CAMSHAFT_DECL
#include "table.h"

namespace camshaft {

const Kernels& kernels_ref() {
  static const Kernels table = CAMSHAFT_TABLE(ref);
  return table;
}

}  // namespace camshaft
