// Program. A step goes in as a plan (step.cpp), or as four int32 arrays for tools and tests; the GIL is released while it is computed.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>

#include "bind.h"
#include "buffer.h"
#include "camshaft/program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace camshaft {
namespace {

using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::span<const int32_t> view(const Ids& a) { return {a.data(), a.shape(0)}; }

// Rows of an int32 table as structs of as many int32.
template <class T> std::span<const T> rows_of(const Table& a, const char* what) {
  constexpr size_t columns = sizeof(T) / sizeof(int32_t);
  if (a.shape(1) != columns) throw nb::value_error((std::string(what) + " must have " + std::to_string(columns) + " columns").c_str());
  return {reinterpret_cast<const T*>(a.data()), a.shape(0)};
}

int asked(nb::handle value) { return value.is_none() ? -1 : nb::cast<int>(value); }

SlotParams read_params(nb::handle p, uint32_t choice) {
  SlotParams out;
  out.temperature = nb::cast<float>(p.attr("temperature"));
  out.top_p = nb::cast<float>(p.attr("top_p"));
  out.top_k = nb::cast<int>(p.attr("top_k"));
  out.min_p = nb::cast<float>(p.attr("min_p"));
  out.repetition_penalty = nb::cast<float>(p.attr("repetition_penalty"));
  out.presence_penalty = nb::cast<float>(p.attr("presence_penalty"));
  out.frequency_penalty = nb::cast<float>(p.attr("frequency_penalty"));
  out.logit_bias = nb::cast<std::vector<std::pair<int32_t, float>>>(p.attr("logit_bias"));
  // Any Python integer seeds: its low 64 bits in two's complement.
  if (const nb::object seed = p.attr("seed"); !seed.is_none()) out.seed = PyLong_AsUnsignedLongLongMask(seed.ptr());
  if (PyErr_Occurred()) throw nb::python_error();
  out.choice = choice;
  out.logprobs = asked(p.attr("logprobs"));
  out.prompt_logprobs = asked(p.attr("prompt_logprobs"));
  return out;
}

void open(Program& p, int slot, nb::object params, uint32_t choice, Ids prompt, Ids output) {
  p.open(slot, read_params(params, choice), view(prompt), view(output));
}

nb::list scores_of(const std::vector<TokenScore>& scores) {
  nb::list out;
  for (const TokenScore& s : scores) out.append(nb::make_tuple(s.id, s.logprob, nb::cast(s.top)));
  return out;
}

nb::list run(Program& p, Ids ids, Table rows, Ids patches, Table copies, nb::dict masks) {
  std::vector<HeldBuffer> held;
  std::vector<MaskSpec> specs;
  held.reserve(masks.size());
  for (auto [slot, mask] : masks) {
    held.emplace_back(mask);
    specs.push_back({nb::cast<int32_t>(slot), words_of(held.back())});
  }
  const Batch batch{view(ids), rows_of<RowSpec>(rows, "rows"), view(patches), rows_of<CopySpec>(copies, "copies"), specs};
  std::vector<RowOutput> outputs;
  {
    nb::gil_scoped_release release;
    outputs = p.run(batch);
  }
  nb::list result;
  for (const RowOutput& row : outputs) result.append(nb::make_tuple(nb::cast(row.ids), scores_of(row.logprobs), scores_of(row.scores)));
  return result;
}

// A copy: the next run overwrites what the program holds.
nb::object last_logits(const Program& p) {
  const std::span<const float> all = p.last_logits();
  auto* data = new float[all.size() + 1];
  nb::capsule owner(data, [](void* d) noexcept { delete[] static_cast<float*>(d); });
  std::memcpy(data, all.data(), all.size_bytes());
  const size_t vocab = size_t(p.vocab_size());
  return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<2>>(data, {all.size() / vocab, vocab}, owner));
}

// A view: the array keeps the program, and the program its weights.
nb::object packed(nb::handle self, int weight) {
  const std::span<const uint8_t> all = nb::cast<const Program&>(self).packed(weight);
  return nb::cast(nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(all.data(), {all.size()}, self));
}

}  // namespace

void bind_program(nb::module_& m) {
  nb::class_<Program> c(m, "Program");
  c.def("open", &open, "slot"_a, "params"_a, "choice"_a, "prompt_ids"_a.noconvert(), "output_ids"_a.noconvert());
  c.def("release", &Program::release, "slot"_a);
  c.def("run", &run, "ids"_a.noconvert(), "rows"_a.noconvert(), "patches"_a.noconvert(), "copies"_a.noconvert(), "masks"_a);
  bind_step(c);
  c.def("keep_logits", &Program::keep_logits, "on"_a);
  c.def("last_logits", &last_logits);
  c.def("packed", &packed, "weight"_a);
  c.def("touch", &Program::touch, nb::call_guard<nb::gil_scoped_release>());
  c.def("node_times", &Program::node_times);
}

}  // namespace camshaft
