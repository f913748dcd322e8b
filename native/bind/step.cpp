// A step from the types of a plan and back to those of its result, read and built here: as arrays of lists, and lists of tuples, the same
// takes several times as long, and the model has thrown Python's own code out of the caches by then.
#include <nanobind/nanobind.h>

#include <chrono>
#include <vector>

#include "bind.h"
#include "buffer.h"
#include "camshaft/program.h"

namespace nb = nanobind;

namespace camshaft {
namespace {

// The types of camshaft.types and the names of their fields, looked up once.
struct Types {
  nb::object row_result, raw_logprob, step_result;
  nb::object rows, copies, slot, start, ids, n_sample, patches, score, group, index, src, dst;

  static const Types& get() {
    // Never destroyed: the interpreter may be gone by then.
    static const Types* types = new Types();
    return *types;
  }

 private:
  Types() {
    const nb::module_ m = nb::module_::import_("camshaft.types");
    row_result = m.attr("RowResult"), raw_logprob = m.attr("RawLogprob"), step_result = m.attr("StepResult");
    const auto name = [](const char* text) { return nb::steal<nb::object>(PyUnicode_InternFromString(text)); };
    rows = name("rows"), copies = name("copies"), slot = name("slot"), start = name("start"), ids = name("ids");
    n_sample = name("n_sample"), patches = name("patches"), score = name("score"), group = name("group"), index = name("index");
    src = name("src"), dst = name("dst");
  }
};

nb::object field(nb::handle object, const nb::object& name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name.ptr());
  if (!value) throw nb::python_error();
  return nb::steal<nb::object>(value);
}

int32_t int32(nb::handle value) {
  const long n = PyLong_AsLong(value.ptr());
  if (n == -1 && PyErr_Occurred()) throw nb::python_error();
  if (n != int32_t(n)) throw nb::value_error("a number of the plan does not fit into 32 bits");
  return int32_t(n);
}

nb::tuple tuple_of(nb::object value) {
  if (!PyTuple_Check(value.ptr())) throw nb::type_error("a plan is made of tuples");
  return nb::borrow<nb::tuple>(value);
}

// The plan as flat arrays; see Batch.
struct Flat {
  std::vector<int32_t> ids, patches;
  std::vector<RowSpec> rows;
  std::vector<CopySpec> copies;

  explicit Flat(nb::handle plan) {
    const Types& t = Types::get();
    for (nb::handle row : tuple_of(field(plan, t.rows))) add_row(row, t);
    for (nb::handle copy : tuple_of(field(plan, t.copies))) copies.push_back({int32(field(copy, t.src)), int32(field(copy, t.dst))});
  }

  void add_row(nb::handle row, const Types& t) {
    const nb::tuple row_ids = tuple_of(field(row, t.ids));
    const int32_t slot = int32(field(row, t.slot));
    for (nb::handle id : row_ids) ids.push_back(int32(id));
    rows.push_back({slot, int32(field(row, t.start)), int32_t(row_ids.size()), int32(field(row, t.n_sample)), field(row, t.score).ptr() == Py_True});
    for (nb::handle patch : tuple_of(field(row, t.patches))) {
      const nb::tuple blocks = tuple_of(field(patch, t.ids));
      patches.insert(patches.end(), {slot, int32(field(patch, t.group)), int32(field(patch, t.index)), int32_t(blocks.size())});
      for (nb::handle block : blocks) patches.push_back(int32(block));
    }
  }
};

struct Masks {
  std::vector<HeldBuffer> held;
  std::vector<MaskSpec> specs;

  explicit Masks(const nb::dict& masks) {
    held.reserve(masks.size());
    for (auto [slot, mask] : masks) {
      held.emplace_back(mask);
      specs.push_back({int32(slot), words_of(held.back())});
    }
  }
};

// A new tuple of n items; `make(i)` gives each.
template <class Make> nb::object tuple_from(size_t n, Make make) {
  nb::object out = nb::steal<nb::object>(PyTuple_New(Py_ssize_t(n)));
  if (!out.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < n; ++i) PyTuple_SET_ITEM(out.ptr(), Py_ssize_t(i), make(i).release().ptr());
  return out;
}

nb::object logprobs_of(const std::vector<TokenScore>& scores, const Types& t) {
  return tuple_from(scores.size(), [&](size_t i) {
    const TokenScore& s = scores[i];
    const nb::object top = tuple_from(s.top.size(), [&](size_t k) { return nb::object(nb::make_tuple(s.top[k].first, s.top[k].second)); });
    return nb::object(t.raw_logprob(s.id, s.logprob, top));
  });
}

nb::object step(Program& program, nb::handle plan, nb::dict masks) {
  const Flat flat(plan);
  const Masks held(masks);
  const Batch batch{flat.ids, flat.rows, flat.patches, flat.copies, held.specs};
  std::vector<RowOutput> outputs;
  double seconds = 0;
  {
    nb::gil_scoped_release release;
    const auto began = std::chrono::steady_clock::now();
    outputs = program.run(batch);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  const Types& t = Types::get();
  const nb::object rows = tuple_from(outputs.size(), [&](size_t i) {
    const RowOutput& row = outputs[i];
    const nb::object ids = tuple_from(row.ids.size(), [&](size_t k) { return nb::object(nb::int_(row.ids[k])); });
    if (row.logprobs.empty() && row.scores.empty()) return nb::object(t.row_result(ids));
    return nb::object(t.row_result(ids, logprobs_of(row.logprobs, t), logprobs_of(row.scores, t)));
  });
  return t.step_result(rows, seconds);
}

}  // namespace

void bind_step(nb::class_<Program>& c) { c.def("step", &step, nb::arg("plan"), nb::arg("masks")); }

}  // namespace camshaft
