// AVX-512 with VNNI: Ice Lake and Zen 4 on.
#include "table.h"

namespace camshaft {

const Kernels* kernels_avx512() {
  const bool here = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (!here) return nullptr;
  static const Kernels table = CAMSHAFT_TABLE(avx512);
  return &table;
}

}  // namespace camshaft
