// The nodes that treat each token alone: embed, norms, rope, gates, add, take_rows.
#include <cstring>

#include "step.h"

namespace camshaft {

void execute(const EmbedNode& node, Step& s) {
  const Buffer& dst = s.buffer(node.dst);
  const Packed& w = s.weight(node.weight);
  s.parallel(s.tokens, 4.0 * w.cols, [&](int begin, int end, int) {
    for (int t = begin; t < end; ++t) {
      unpack_row(w, s.batch.ids()[size_t(t)], dst.rows[t]);
      if (node.scale != 1.0f) s.net.kernels->scale(dst.rows[t], w.cols, node.scale);
    }
  });
  s.acts.forget(node.dst);
  s.times.lap(Work::embed);
}

void execute(const NormNode& node, Step& s) {
  const Buffer &dst = s.buffer(node.dst), &src = s.buffer(node.src);
  const float* w = s.vector(node.weight);
  s.make_rows(node.dst, src.width, node.quantise,
              [&](int t) { s.net.kernels->rms_norm(src.rows[t], w, src.width, node.eps, dst.rows[t]); });
  s.times.lap(Work::norm);
}

void apply(const HeadNormNode& node, const Step& s, int t) {
  const HeadsSpec& h = node.heads;
  for (int i = 0; i < h.n_heads; ++i) {
    float* x = s.buffer(h.buf).rows[t] + h.col + i * h.head_dim;
    s.net.kernels->rms_norm(x, s.vector(node.weight), h.head_dim, node.eps, x);
  }
}

void apply(const RopeNode& node, const Step& s, int t) {
  const HeadsSpec& h = node.heads;
  const RopeTable& table = s.net.ropes[size_t(node.table)];
  const int64_t at = int64_t(s.batch.position(t)) * table.half;
  s.net.kernels->rope(s.buffer(h.buf).rows[t] + h.col, h.n_heads, h.head_dim, table.cos + at, table.sin + at, table.half);
}

namespace {

template <class Node> void apply_to_all(const Node& node, Step& s, Work work) {
  s.parallel(s.tokens, node.heads.n_heads * node.heads.head_dim, [&](int begin, int end, int) {
    for (int t = begin; t < end; ++t) apply(node, s, t);
  });
  s.acts.forget(node.heads.buf);
  s.times.lap(work);
}

}  // namespace

void execute(const HeadNormNode& node, Step& s) { apply_to_all(node, s, Work::norm); }
void execute(const RopeNode& node, Step& s) { apply_to_all(node, s, Work::rope); }

void execute(const GateNode& node, Step& s) {
  const GateSpec& g = node.spec;
  const Buffer &dst = s.buffer(g.dst), &src = s.buffer(g.src);
  const auto gate = node.gelu ? s.net.kernels->gelu_mul : s.net.kernels->silu_mul;
  s.make_rows(g.dst, 4.0 * g.n, node.quantise,
              [&](int t) { gate(src.rows[t] + g.gate_col, src.rows[t] + g.up_col, g.n, dst.rows[t]); });
  s.times.lap(Work::gate);
}

void execute(const AddNode& node, Step& s) {
  const Buffer &dst = s.buffer(node.dst), &a = s.buffer(node.a), &b = s.buffer(node.b);
  s.parallel(s.tokens, dst.width, [&](int begin, int end, int) {
    for (int t = begin; t < end; ++t) s.net.kernels->add(a.rows[t], b.rows[t], dst.width, dst.rows[t]);
  });
  s.acts.forget(node.dst);
  s.times.lap(Work::add);
}

void execute(const TakeNode& node, Step& s) {
  const Buffer &dst = s.buffer(node.dst), &src = s.buffer(node.src);
  const std::vector<Taken>& taken = s.batch.taken();
  for (size_t i = 0; i < taken.size(); ++i)
    std::memcpy(dst.rows[int64_t(i)], src.rows[taken[i].token], size_t(src.width) * sizeof(float));
  s.tokens = int(taken.size());
  s.acts.forget();  // the same buffer has other rows from here on
  s.times.lap(Work::take_rows);
}

}  // namespace camshaft
