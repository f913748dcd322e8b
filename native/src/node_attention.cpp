// Attention: first every K and V of the step goes into the pool, then every query reads from there, the step's own tokens included.
#include "step.h"

namespace camshaft {
namespace {

const int32_t* table_of(const Step& s, int row, int group) {
  return s.slots[size_t(s.batch.rows()[size_t(row)].slot)].tables[size_t(group)].data();
}

void write_kv(const AttentionSpec& a, const KvLayer& layer, Step& s) {
  const Buffer& kv = s.buffer(a.kv);
  s.parallel(s.tokens, 4.0 * layer.n_kv_heads * layer.head_dim, [&](int begin, int end, int) {
    for (int t = begin; t < end; ++t) {
      const KvWriteArgs args{layer, table_of(s, s.batch.row_of(t), a.group)};
      s.net.kernels->kv_write(args, s.batch.position(t), kv.rows[t] + a.k_col, kv.rows[t] + a.v_col);
    }
  });
}

}  // namespace

void execute(const AttentionNode& node, Step& s) {
  const AttentionSpec& a = node.spec;
  const KvLayer layer = s.kv.layer(a.layer);
  write_kv(a, layer, s);
  s.times.lap("kv_write");
  const AttnArgs args{layer, a.n_heads, a.window, a.scale, a.softcap};
  const Buffer &q = s.buffer(a.q), &dst = s.buffer(a.dst);
  const Rows queries{q.rows.data + a.q_col, q.rows.stride};
  const auto& items = s.batch.attention();
  auto body = [&](int begin, int end, int worker) {
    for (int i = begin; i < end; ++i) {
      const AttnItem& item = items[size_t(i / layer.n_kv_heads)];
      const RowSpec& row = s.batch.rows()[size_t(item.row)];
      const AttnRow where{table_of(s, item.row, a.group), s.batch.first(item.row), row.n_new, row.start};
      s.net.kernels->attention(args, where, i % layer.n_kv_heads, item.t_begin, item.t_end, queries, dst.rows, s.scratch[size_t(worker)]);
    }
  };
  const int n = int(items.size()) * layer.n_kv_heads;
  constexpr double kWorthSharing = 100'000;  // multiplications
  const double work = s.batch.attention_pairs() * a.n_heads * layer.head_dim * 2;
  if (work < kWorthSharing) body(0, n, 0);
  else s.pool.run(n, 1, body);
  s.acts.forget(a.dst);
  s.times.lap("attention");
}

}  // namespace camshaft
