// The head: logits of the taken rows in slices, each sampled or scored before the next is computed, so that logits never need more
// room than one slice.
#include <cstring>

#include "step.h"

namespace camshaft {

void execute(const HeadNode& node, Step& s) {
  const Buffer& src = s.buffer(node.src);
  const Packed& w = s.weight(node.weight);
  const std::vector<Taken>& taken = s.batch.taken();
  s.times.lap("head");
  for (int first = 0; first < s.tokens; first += kHeadSlice) {
    const int n = std::min(kHeadSlice, s.tokens - first);
    const LinearJob job{&w, nullptr, s.logits};
    multiply(s, -1, {src.rows[first], src.rows.stride}, src.width, n, {&job, 1}, false, node.next);
    s.times.lap("head");
    auto body = [&](int begin, int end, int worker) {
      for (int i = begin; i < end; ++i) {
        const Taken& t = taken[size_t(first + i)];
        float* x = s.logits[i];
        if (node.softcap > 0.0f) s.net.kernels->softcap(x, w.rows, node.softcap);
        if (s.kept) std::memcpy(s.kept + size_t(first + i) * size_t(w.rows), x, size_t(w.rows) * sizeof(float));
        s.sampler.judge(t, s.batch, s.slots[size_t(s.batch.rows()[size_t(t.row)].slot)], x, worker, s.out[size_t(t.row)]);
      }
    };
    s.pool.run(n, 1, body);
    s.times.lap("sample");
  }
}

}  // namespace camshaft
