// The string arrays of a GGUF file: a length (uint64, little-endian) before each string's bytes. A vocabulary has hundreds of thousands.
#include <nanobind/stl/pair.h>

#include <cstring>

#include "bind.h"
#include "buffer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace camshaft {
namespace {

// The string at `at`, if all of it lies in the bytes and is no longer than `longest`.
bool string_at(std::span<const uint8_t> bytes, uint64_t at, uint64_t longest, std::span<const uint8_t>& out) {
  if (at > bytes.size() || bytes.size() - at < 8) return false;
  uint64_t n;
  std::memcpy(&n, bytes.data() + at, 8);
  if (n > longest || n > bytes.size() - at - 8) return false;
  out = bytes.subspan(at + 8, n);
  return true;
}

std::pair<uint64_t, uint64_t> skip_strings(nb::object data, uint64_t at, uint64_t count, uint64_t longest) {
  const HeldBuffer held(data);
  std::span<const uint8_t> found;
  uint64_t i = 0;
  for (; i < count && string_at(held.bytes(), at, longest, found); ++i) at += 8 + found.size();
  return {i, at};
}

nb::list read_strings(nb::object data, uint64_t count) {
  const HeldBuffer held(data);
  nb::list out;
  std::span<const uint8_t> found;
  for (uint64_t i = 0, at = 0; i < count && string_at(held.bytes(), at, held.bytes().size(), found); ++i, at += 8 + found.size()) {
    PyObject* text = PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(found.data()), Py_ssize_t(found.size()), nullptr);
    if (!text) {
      if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) throw nb::python_error();
      PyErr_Clear();
      break;
    }
    out.append(nb::steal(text));
  }
  return out;
}

}  // namespace

void bind_strings(nb::module_& m) {
  m.def("skip_strings", &skip_strings, "data"_a, "at"_a, "count"_a, "longest"_a);
  m.def("read_strings", &read_strings, "data"_a, "count"_a);
}

}  // namespace camshaft
