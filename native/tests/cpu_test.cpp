#include "camshaft/cpu.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "check.h"

using namespace camshaft;
namespace fs = std::filesystem;

namespace {

// A tree of control groups of our own.
class Groups {
 public:
  Groups() : root_(fs::temp_directory_path() / ("camshaft-groups-" + std::to_string(getpid()) + "-" + std::to_string(made++))) { fs::create_directories(root_); }
  ~Groups() { fs::remove_all(root_); }
  void file(const std::string& path, const std::string& content) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content << "\n";
  }
  int cores(const std::string& membership) const {
    std::istringstream in(membership);
    return quota_cores(root_.string(), in);
  }

 private:
  static inline int made = 0;
  fs::path root_;
};

void without_a_quota_there_is_none() {
  const Groups none;
  CHECK(none.cores("") == 0);
  CHECK(none.cores("0::/\n1:cpu:/\n") == 0);
  const Groups open;
  open.file("cpu.max", "max 100000");
  open.file("cpu/cpu.cfs_quota_us", "-1");
  open.file("cpu/cpu.cfs_period_us", "100000");
  CHECK(open.cores("0::/\n1:cpu:/\n") == 0);
}

void version_2_counts_the_groups_around_the_own_one() {
  const Groups groups;
  groups.file("cpu.max", "max 100000");
  groups.file("pods/cpu.max", "300000 100000");
  groups.file("pods/one/cpu.max", "800000 100000");
  groups.file("pods/two/cpu.max", "150000 50000");
  groups.file("pods/two/inner/cpu.max", "200000 100000");
  CHECK(groups.cores("0::/pods\n") == 3);
  CHECK(groups.cores("0::/pods/one\n") == 3);
  CHECK(groups.cores("0::/pods/two\n") == 3);
  CHECK(groups.cores("0::/pods/two/inner\n") == 2);
  CHECK(groups.cores("0::/pods/not/to/be/seen\n") == 3);
  CHECK(groups.cores("0::/../../elsewhere\n") == 0);
}

void part_of_a_core_counts_only_where_it_is_nearly_all_of_it() {
  const Groups groups;
  for (const auto& [quota, want] : {std::pair{"20000", 1}, {"100000", 1}, {"150000", 1}, {"189000", 1}, {"195000", 2}, {"250000", 2}}) {
    groups.file("cpu.max", std::string(quota) + " 100000");
    CHECK(groups.cores("0::/\n") == want);
  }
}

void version_1_is_found_under_the_name_of_its_controllers() {
  const Groups groups;
  groups.file("cpu,cpuacct/docker/c1/cpu.cfs_quota_us", "200000");
  groups.file("cpu,cpuacct/docker/c1/cpu.cfs_period_us", "100000");
  CHECK(groups.cores("5:memory:/docker/c1\n4:cpu,cpuacct:/docker/c1\n") == 2);
  CHECK(groups.cores("4:cpuset:/docker/c1\n") == 0);
  const Groups inside;  // the container sees its own group as the root
  inside.file("cpu/cpu.cfs_quota_us", "400000");
  inside.file("cpu/cpu.cfs_period_us", "100000");
  CHECK(inside.cores("3:cpu:/docker/c1\n") == 4);
}

void this_process_may_use_a_core() { CHECK(usable_cores() >= 1); }

}  // namespace

int main() {
  RUN(without_a_quota_there_is_none);
  RUN(version_2_counts_the_groups_around_the_own_one);
  RUN(part_of_a_core_counts_only_where_it_is_nearly_all_of_it);
  RUN(version_1_is_found_under_the_name_of_its_controllers);
  RUN(this_process_may_use_a_core);
  return camshaft::test::result();
}
