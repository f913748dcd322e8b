// Which instruction sets this machine and build have, and how many cores this process may use.
#include "camshaft/cpu.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

namespace camshaft {

#ifndef CAMSHAFT_X86
const Kernels* kernels_avx2() { return nullptr; }
const Kernels* kernels_avx512() { return nullptr; }
#endif

namespace {

const Kernels* kernels_named(const std::string& isa) {
  if (isa == "ref") return &kernels_ref();
  if (isa == "avx2") return kernels_avx2();
  if (isa == "avx512") return kernels_avx512();
  return nullptr;
}

int affinity_cores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return int(std::thread::hardware_concurrency());
}

// Whole cores that the cgroup's CPU quota allows, or 0 where there is none. Version 2 says "quota period" or "max period" in one file.
int quota_cores() {
  double quota = 0, period = 0;
  std::string word;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> word >> period) {
    quota = word == "max" ? 0 : std::atof(word.c_str());
  } else {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? std::max(1, int(quota / period)) : 0;
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const char* name : {"avx512", "avx2", "ref"})
    if (kernels_named(name)) names.emplace_back(name);
  return names;
}

const Kernels& select_kernels(const std::string& isa) {
  const char* forced = std::getenv("CAMSHAFT_ISA");
  const std::vector<std::string> names = available_isas();
  const std::string wanted = !isa.empty() ? isa : forced && *forced ? forced : names.front();
  if (const Kernels* k = kernels_named(wanted)) return *k;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw std::invalid_argument("instruction set '" + wanted + "' is not available: this machine and build have " + list);
}

int usable_cores() {
  const int quota = quota_cores();
  const int cores = std::max(1, affinity_cores());
  return quota > 0 ? std::min(quota, cores) : cores;
}

}  // namespace camshaft
