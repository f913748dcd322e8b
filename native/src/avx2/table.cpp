// AVX2 with FMA and F16C: every x86-64 server since 2013.
#include "table.h"

namespace camshaft {

const Kernels* kernels_avx2() {
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))) return nullptr;
  static const Kernels table = CAMSHAFT_TABLE(avx2);
  return &table;
}

}  // namespace camshaft
