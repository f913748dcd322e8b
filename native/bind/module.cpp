// camshaft._native: the native runtime for Python. The stub src/camshaft/_native.pyi is its contract.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "camshaft/cpu.h"
#include "camshaft/formats.h"
#include "kv_pool.h"
#include "roofline.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

camshaft::FileType known(uint32_t type) {
  if (!camshaft::known_file_type(type)) throw nb::value_error(("tensor type " + std::to_string(type) + " is not one that can be read").c_str());
  return camshaft::FileType(type);
}

const char* form_name(uint32_t type) { return camshaft::form_name(camshaft::form_of(known(type))); }

}  // namespace

NB_MODULE(_native, m) {
  // A program that ends in an error may still hold one of ours in its traceback; that is no leak worth a page on the terminal.
  nb::set_leak_warnings(false);
  m.attr("__version__") = CAMSHAFT_VERSION;
  m.def("available_isas", &camshaft::available_isas);
  m.def("usable_cores", &camshaft::usable_cores);
  m.def("known_file_type", &camshaft::known_file_type, "type"_a);
  m.def("form_name", &form_name, "type"_a);
  m.def(
      "packed_bytes",
      [](const std::string& form, int rows, int cols) {
        if (rows < 1 || cols < 1) throw nb::value_error("a matrix has at least one row and one column");
        return camshaft::packed_bytes(camshaft::form_called(form), rows, cols);
      },
      "form"_a, "rows"_a, "cols"_a);
  m.def("packing_id", &camshaft::packing_id);
  m.def("is_widened", [](uint32_t type) { return camshaft::is_widened(known(type)); }, "type"_a);
  m.def("file_row_bytes", [](uint32_t type, int cols) { return camshaft::file_row_bytes(known(type), cols); }, "type"_a, "cols"_a);
  m.def(
      "kv_layer_bytes",
      [](const std::string& dtype, int block_size, int n_kv_heads, int head_dim) {
        return camshaft::kv_layer_bytes(camshaft::kv_type(dtype), block_size, n_kv_heads, head_dim);
      },
      "dtype"_a, "block_size"_a, "n_kv_heads"_a, "head_dim"_a);
  m.def(
      "roofline",
      [](int threads, const std::string& isa, double seconds) {
        nb::gil_scoped_release release;
        return camshaft::roofline(threads, isa, seconds);
      },
      "threads"_a, "isa"_a, "seconds"_a);
  camshaft::bind_strings(m);
  camshaft::bind_packed(m);
  camshaft::bind_builder(m);
  camshaft::bind_program(m);
}
