// The instruction sets of this machine, for tests that run on each.
#pragma once
#include <string>
#include <vector>

#include "camshaft/cpu.h"

namespace camshaft::test {

inline std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all;
  for (const std::string& name : available_isas()) all.push_back(&select_kernels(name));
  return all;
}

}  // namespace camshaft::test
