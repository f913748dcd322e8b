// Which instruction sets this machine and build have, and how many cores this process may use.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>
#include "camshaft/ops.h"

namespace camshaft {
std::vector<std::string> available_isas();              // best first; always ends in "ref"
const Kernels& select_kernels(const std::string& isa);  // "" takes CAMSHAFT_ISA, else the best; throws std::invalid_argument, naming what there is
// Whole cores that the CPU quotas of this process's control groups allow, those around them included; 0: there is none. `mount` is where the
// groups' files lie, `membership` what /proc/self/cgroup says. A quota of 2.5 cores is 2: a third thread would be stopped half the time,
// and with it the other two, which wait for it.
int quota_cores(const std::string& mount, std::istream& membership);
int usable_cores();                                     // affinity mask and cgroup CPU quota, at least 1
}  // namespace camshaft
