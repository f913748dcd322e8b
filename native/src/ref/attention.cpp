// Scalar twin of attention: one query, one head, one span after the other, as the contract says it.
#include <cmath>

#include "../kernels_decl.h"
#include "../mathf.h"

namespace camshaft::ref {
namespace {

// Where one kv head's K and V lie, and how an element is read.
struct Cache {
  const KvLayer& kv;
  const int32_t* table;
  int kv_head;

  float k(int pos, int d) const {
    const int token = pos % kv.block_size;
    const size_t sub_block = static_cast<size_t>(token / kSubBlock * kSubBlock) * dim();
    return element(kv.k, pos, sub_block + static_cast<size_t>(d * kSubBlock + token % kSubBlock));
  }
  float v(int pos, int d) const { return element(kv.v, pos, static_cast<size_t>(pos % kv.block_size) * dim() + static_cast<size_t>(d)); }

 private:
  size_t dim() const { return static_cast<size_t>(kv.head_dim); }
  // Element `index` of this head's part of the block that holds `pos`.
  float element(const uint8_t* base, int pos, size_t index) const {
    const uint8_t* block = base + static_cast<size_t>(table[pos / kv.block_size]) * kv.block_bytes;
    index += static_cast<size_t>(kv_head) * static_cast<size_t>(kv.block_size) * dim();
    if (kv.type == KvType::f32) return reinterpret_cast<const float*>(block)[index];
    return bf16_to_f32(reinterpret_cast<const uint16_t*>(block)[index]);
  }
};

// One span's part of the softmax: m, l and o[head_dim] of the contract.
struct Span {
  float m, l;
  float* o;
};

// Positions [begin, end) of one span, which are all visible and at least one.
void span_part(const AttnArgs& a, const Cache& cache, const float* q, int begin, int end, Span& out) {
  float p[kSpan];
  const int base = begin / kSpan * kSpan;
  for (int j = begin; j < end; j++) {
    float s = 0.0f;
    for (int d = 0; d < a.kv.head_dim; d++) s = std::fma(q[d], cache.k(j, d), s);
    s *= a.scale;
    if (a.softcap > 0) s = a.softcap * tanh_f32(s / a.softcap);
    p[j - base] = s;
    if (j == begin || s > out.m) out.m = s;
  }
  float lane[kLanes] = {};
  for (int j = begin; j < end; j++) {
    p[j - base] = exp_f32(p[j - base] - out.m);
    lane[j % kLanes] += p[j - base];
  }
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  out.l = lane[0];
  for (int d = 0; d < a.kv.head_dim; d++) {
    out.o[d] = 0.0f;
    for (int j = begin; j < end; j++) out.o[d] = std::fma(p[j - base], cache.v(j, d), out.o[d]);
  }
}

// One query [head_dim] at `pos` -> out [head_dim]. scratch: 2 * head_dim floats.
void attend(const AttnArgs& a, const Cache& cache, int pos, const float* q, float* out, float* scratch) {
  const int dim = a.kv.head_dim;
  const int first = a.window > 0 && pos - a.window + 1 > 0 ? pos - a.window + 1 : 0;
  float max = 0.0f, sum = 0.0f;
  float* acc = scratch;
  Span part{0.0f, 0.0f, scratch + dim};
  for (int base = first / kSpan * kSpan; base <= pos; base += kSpan) {
    span_part(a, cache, q, base > first ? base : first, base + kSpan < pos + 1 ? base + kSpan : pos + 1, part);
    if (base <= first) {
      max = part.m, sum = part.l;
      for (int d = 0; d < dim; d++) acc[d] = part.o[d];
      continue;
    }
    const float m = part.m > max ? part.m : max;
    const float keep = exp_f32(max - m), take = exp_f32(part.m - m);
    max = m;
    sum = std::fma(sum, keep, part.l * take);
    for (int d = 0; d < dim; d++) acc[d] = std::fma(acc[d], keep, part.o[d] * take);
  }
  const float inv = 1.0f / sum;
  for (int d = 0; d < dim; d++) out[d] = std::fma(acc[d], inv, 0.0f);
}

}  // namespace

size_t attn_scratch_floats(const AttnArgs& a) { return 2 * static_cast<size_t>(a.kv.head_dim); }

void attention(const AttnArgs& a, const AttnRow& row, int kv_head, int t_begin, int t_end, Rows q, Rows out, float* scratch) {
  const int per_kv = a.n_heads / a.kv.n_kv_heads, dim = a.kv.head_dim;
  const Cache cache{a.kv, row.table, kv_head};
  for (int t = t_begin; t < t_end; t++)
    for (int h = kv_head * per_kv; h < (kv_head + 1) * per_kv; h++) {
      const ptrdiff_t at = static_cast<ptrdiff_t>(h) * dim;
      attend(a, cache, row.start + (t - row.first), q[t] + at, out[t] + at, scratch);
    }
}

}  // namespace camshaft::ref
