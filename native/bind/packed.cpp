// Packed weights on disk: the map that a program computes from, and the checksums that say whether it may.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "bind.h"
#include "buffer.h"
#include "camshaft/checksum.h"
#include "camshaft/mapped.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace camshaft {
namespace {

uint64_t checksum_of(nb::object data) {
  const HeldBuffer held(data);
  nb::gil_scoped_release release;
  return checksum(held.bytes().data(), held.bytes().size());
}

bool intact(const MappedFile& file, const std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>& stretches, int threads) {
  std::vector<Stretch> all;
  all.reserve(stretches.size());
  for (const auto& [offset, bytes, sum] : stretches) all.push_back({offset, bytes, sum});
  nb::gil_scoped_release release;
  return file.intact(all, threads);
}

}  // namespace

void bind_packed(nb::module_& m) {
  m.def("checksum", &checksum_of, "data"_a);
  nb::class_<MappedFile> c(m, "MappedFile");
  c.def(nb::init<int>(), "fd"_a);
  c.def("size", &MappedFile::size);
  c.def("intact", &intact, "stretches"_a, "threads"_a);
}

}  // namespace camshaft
