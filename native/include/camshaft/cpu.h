// Which instruction sets this machine and build have, and how many cores this process may use.
#pragma once
#include <string>
#include <vector>
#include "camshaft/ops.h"

namespace camshaft {
std::vector<std::string> available_isas();              // best first; always ends in "ref"
const Kernels& select_kernels(const std::string& isa);  // "" takes CAMSHAFT_ISA, else the best; throws std::invalid_argument, naming what there is
int usable_cores();                                     // affinity mask and cgroup CPU quota, at least 1
}  // namespace camshaft
