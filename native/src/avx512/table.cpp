// AVX-512 with VNNI: Ice Lake and Zen 4 on.
#include "table.h"

namespace camshaft {

const Kernels* kernels_avx512() {
#ifdef CAMSHAFT_EMULATE_AVX512
  const bool here = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  const bool here = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
#endif
  if (!here) return nullptr;
  static const Kernels table = CAMSHAFT_TABLE(avx512);
  return &table;
}

}  // namespace camshaft
