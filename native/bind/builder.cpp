// Builder: what is checked here is only what C++ could not see, such as the types of arrays.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind.h"
#include "buffer.h"
#include "camshaft/program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace camshaft {
namespace {

template <class T> using Vec = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> std::span<const T> view(const Vec<T>& a) { return {a.data(), a.shape(0)}; }

// numpy aligns what it allocates; a view into a file may not be.
template <class T> const Vec<T>& aligned(const Vec<T>& a) {
  if (reinterpret_cast<uintptr_t>(a.data()) % alignof(T)) throw nb::value_error("an array's memory is not aligned to its elements");
  return a;
}

int weight(Builder& b, uint32_t type, int rows, int cols, nb::object data, std::optional<Vec<int32_t>> order, const std::string& form) {
  const HeldBuffer held(data);
  MatrixSpec m{type, rows, cols, held.bytes(), {}, form};
  if (order) m.row_order = view(aligned(*order));
  nb::gil_scoped_release release;
  return b.weight(m);
}

int mapped_weight(Builder& b, std::shared_ptr<MappedFile> file, uint64_t offset, const std::string& form, int rows, int cols) {
  return b.mapped_weight(std::move(file), offset, form_called(form), rows, cols);
}

void linear(Builder& b, int src, nb::sequence parts, bool accumulate) {
  std::vector<PartSpec> specs;
  for (nb::handle part : parts) {
    const auto fields = nb::cast<nb::tuple>(part);
    if (fields.size() != 4) throw nb::value_error("a part is (weight, bias, dst, col)");
    specs.push_back({nb::cast<int>(fields[0]), nb::cast<int>(fields[1]), nb::cast<int>(fields[2]), nb::cast<int>(fields[3])});
  }
  b.linear(src, specs, accumulate);
}

void bind_nodes(nb::class_<Builder>& c) {
  c.def("embed", &Builder::embed, "dst"_a, "weight"_a, "scale"_a);
  c.def("rms_norm", &Builder::rms_norm, "dst"_a, "src"_a, "weight"_a, "eps"_a);
  c.def(
      "head_norm",
      [](Builder& b, int buf, int col, int n_heads, int head_dim, int weight, float eps) { b.head_norm({buf, col, n_heads, head_dim}, weight, eps); },
      "buf"_a, "col"_a, "n_heads"_a, "head_dim"_a, "weight"_a, "eps"_a);
  c.def("linear", &linear, "src"_a, "parts"_a, "accumulate"_a);
  c.def(
      "rope", [](Builder& b, int buf, int col, int n_heads, int head_dim, int table) { b.rope({buf, col, n_heads, head_dim}, table); }, "buf"_a,
      "col"_a, "n_heads"_a, "head_dim"_a, "table"_a);
  c.def(
      "attention",
      [](Builder& b, int dst, int q, int q_col, int kv, int k_col, int v_col, int group, int layer, int n_heads, int window, float scale,
         float softcap) { b.attention({dst, q, q_col, kv, k_col, v_col, group, layer, n_heads, window, scale, softcap}); },
      "dst"_a, "q"_a, "q_col"_a, "kv"_a, "k_col"_a, "v_col"_a, nb::kw_only(), "group"_a, "layer"_a, "n_heads"_a, "window"_a, "scale"_a, "softcap"_a);
  c.def(
      "silu_mul", [](Builder& b, int dst, int src, int gate_col, int up_col, int n) { b.silu_mul({dst, src, gate_col, up_col, n}); }, "dst"_a,
      "src"_a, "gate_col"_a, "up_col"_a, "n"_a);
  c.def(
      "gelu_mul", [](Builder& b, int dst, int src, int gate_col, int up_col, int n) { b.gelu_mul({dst, src, gate_col, up_col, n}); }, "dst"_a,
      "src"_a, "gate_col"_a, "up_col"_a, "n"_a);
  c.def("add", &Builder::add, "dst"_a, "a"_a, "b"_a);
  c.def("take_rows", &Builder::take_rows, "dst"_a, "src"_a);
  c.def("head", &Builder::head, "src"_a, "weight"_a, "softcap"_a);
}

}  // namespace

void bind_builder(nb::module_& m) {
  m.attr("Part") = nb::module_::import_("collections").attr("namedtuple")("Part", nb::make_tuple("weight", "bias", "dst", "col"));
  nb::class_<Builder> c(m, "Builder");
  c.def(
      "__init__",
      [](Builder* self, const std::string& isa, int threads, const std::string& compute, int max_tokens, int max_slots, int vocab_size,
         bool pin_threads) { new (self) Builder(ProgramOptions{isa, threads, compute, max_tokens, max_slots, vocab_size, pin_threads});
      },
      nb::kw_only(), "isa"_a, "threads"_a, "compute"_a, "max_tokens"_a, "max_slots"_a, "vocab_size"_a, "pin_threads"_a = false);
  c.def("weight", &weight, "type"_a, "rows"_a, "cols"_a, "data"_a, "row_order"_a.none() = nb::none(), "form"_a = "");
  c.def("mapped_weight", &mapped_weight, "file"_a, "offset"_a, "form"_a, "rows"_a, "cols"_a);
  c.def("weight_bytes", &Builder::weight_bytes);
  c.def("vector", [](Builder& b, Vec<float> data) { return b.vector(view(aligned(data))); }, "data"_a.noconvert());
  c.def(
      "rope_table", [](Builder& b, Vec<double> inv_freq, int max_positions) { return b.rope_table(view(aligned(inv_freq)), max_positions); },
      "inv_freq"_a.noconvert(), "max_positions"_a);
  c.def("buffer", &Builder::buffer, "width"_a);
  c.def(
      "kv_cache",
      [](Builder& b, int block_size, int n_blocks, const std::string& dtype, int n_layers_per_block, int n_groups, int n_kv_heads, int head_dim) {
        b.kv_cache({block_size, n_blocks, dtype, n_layers_per_block, n_groups, n_kv_heads, head_dim});
      },
      nb::kw_only(), "block_size"_a, "n_blocks"_a, "dtype"_a, "n_layers_per_block"_a, "n_groups"_a, "n_kv_heads"_a, "head_dim"_a);
  bind_nodes(c);
  c.def("build", &Builder::build, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace camshaft
