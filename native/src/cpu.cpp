// Which instruction sets this machine and build have, and how many cores this process may use.
#include "camshaft/cpu.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>
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

double least(double a, double b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); }

// The quota of one group in cores; 0 where its files say none, or are not there. Version 2 has "quota period" or "max period" in one file.
double quota_of(const std::filesystem::path& group) {
  double quota = 0, period = 0;
  std::string word;
  if (std::ifstream v2(group / "cpu.max"); v2 >> word >> period) {
    quota = word == "max" ? 0 : std::atof(word.c_str());
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;  // -1: none
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// The least quota of the group `path` below `mount` and of those around it. In a container the path may be the host's, and its folders not
// to be seen: the mount itself is then the container's own group.
double quota_along(const std::filesystem::path& mount, std::string_view path) {
  double found = quota_of(mount);
  std::filesystem::path group = mount;
  for (const auto& part : std::filesystem::path(path).relative_path()) {
    if (part == "..") break;  // a group outside of what this namespace shows
    group /= part;
    found = least(found, quota_of(group));
  }
  return found;
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

int quota_cores(const std::string& mount, std::istream& membership) {
  double quota = 0;
  // A line is "number:controllers:path"; that of version 2 names no controllers.
  for (std::string line; std::getline(membership, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = std::string_view(line).substr(second + 1);
    if (controllers.empty()) {
      quota = least(quota, quota_along(mount, path));
      quota = least(quota, quota_along(mount + "/unified", path));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      quota = least(quota, quota_along(mount + "/" + controllers, path));
      quota = least(quota, quota_along(mount + "/cpu", path));
    }
  }
  constexpr double kNearly = 0.1;  // so little short of a whole core costs less than doing without it
  return quota > 0 ? std::max(1, int(quota + kNearly)) : 0;
}

int usable_cores() {
  std::ifstream membership("/proc/self/cgroup");
  const int quota = quota_cores("/sys/fs/cgroup", membership);
  const int cores = std::max(1, affinity_cores());
  return quota > 0 ? std::min(quota, cores) : cores;
}

}  // namespace camshaft
