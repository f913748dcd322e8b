// Scalar twin of attention: one token, one span, one head after the other, as the contract says it.
#include <cmath>

#include "../kernels_decl.h"
#include "../mathf.h"
#include "fixed.h"

namespace camshaft::ref {
namespace {

// One span of a kv head as plain numbers: K and V [kSpan][head_dim], and what they are to be multiplied by (1 but for int8).
struct Span {
  int begin, end;  // the visible positions: at least one
  float *k, *v;    // integers, where the cache has int8
  float k_scale[kSpan], v_scale[kSpan];
};

float stored(const KvLayer& kv, const uint8_t* sub_block, int index) {
  if (kv.type == KvType::f32) return reinterpret_cast<const float*>(sub_block)[index];
  if (kv.type == KvType::bf16) return bf16_to_f32(reinterpret_cast<const uint16_t*>(sub_block)[index]);
  return reinterpret_cast<const int8_t*>(sub_block)[index];
}

void read_span(const KvLayer& kv, const int32_t* table, int kv_head, Span& span) {
  const int dim = kv.head_dim, even = dim + dim % 2;
  const bool bytes = kv.type == KvType::int8;
  for (int pos = span.begin; pos < span.end; pos++) {
    const int j = pos % kSpan, lane = pos % kSubBlock;
    const size_t at = static_cast<size_t>(table[pos / kv.block_size]) * kv.block_bytes + static_cast<size_t>(kv_head) * kv.head_bytes() +
                      static_cast<size_t>(pos % kv.block_size / kSubBlock) * kv.sub_block_bytes();
    const uint8_t *k = kv.k + at, *v = kv.v + at;
    for (int d = 0; d < dim; d++) {
      span.k[j * dim + d] = stored(kv, k, bytes ? (d / 2 * kSubBlock + lane) * 2 + d % 2 : d * kSubBlock + lane);
      span.v[j * dim + d] = stored(kv, v, bytes ? (lane / 2 * even + d) * 2 + lane % 2 : lane * dim + d);
    }
    span.k_scale[j] = bytes ? bf16_to_f32(reinterpret_cast<const uint16_t*>(k + kSubBlock * even)[lane]) : 1.0f;
    span.v_scale[j] = bytes ? bf16_to_f32(reinterpret_cast<const uint16_t*>(v + kSubBlock * even)[lane]) : 1.0f;
  }
}

// One head's query, and as integers for int8.
struct Query {
  const float* q;
  float step, inverse;
};

float dot(const KvLayer& kv, const Query& query, const Span& span, int j) {
  const float* k = span.k + j * kv.head_dim;
  if (kv.type == KvType::int8) {
    int32_t sum = 0;
    for (int d = 0; d < kv.head_dim; d++) sum += to_level(query.q[d], query.inverse, kWordLevels) * static_cast<int32_t>(k[d]);
    return static_cast<float>(sum) * span.k_scale[j];
  }
  float sum = 0.0f;
  for (int d = 0; d < kv.head_dim; d++) sum = std::fma(query.q[d], k[d], sum);
  return sum;
}

// o_d of the contract from p [kSpan], zero where not visible.
void mix(const KvLayer& kv, const Span& span, const float* p, float* o) {
  const int dim = kv.head_dim, first = span.begin % kSpan, last = first + span.end - span.begin;
  if (kv.type != KvType::int8) {
    for (int d = 0; d < dim; d++) {
      o[d] = 0.0f;
      for (int j = first; j < last; j++) o[d] = std::fma(p[j], span.v[j * dim + d], o[d]);
    }
    return;
  }
  float w[kSpan];
  for (int j = first; j < last; j++) w[j] = p[j] * span.v_scale[j];
  const float most = largest(w + first, last - first), inverse = fixed_inverse(most, kWordLevels);
  for (int d = 0; d < dim; d++) {
    int32_t sum = 0;
    for (int j = first; j < last; j++) sum += to_level(w[j], inverse, kWordLevels) * static_cast<int32_t>(span.v[j * dim + d]);
    o[d] = static_cast<float>(sum) * fixed_step(most, kWordLevels);
  }
}

// Of a span, or of all spans so far: m, l and o[head_dim] of the contract.
struct Part {
  float m, l;
  float* o;
};

void span_part(const AttnArgs& a, const Query& query, const Span& span, Part& out) {
  float p[kSpan];
  const int first = span.begin % kSpan, last = first + span.end - span.begin;
  const float scale = a.kv.type == KvType::int8 ? query.step * a.scale : a.scale;
  for (int j = first; j < last; j++) {
    float s = dot(a.kv, query, span, j) * scale;
    if (a.softcap > 0) s = a.softcap * tanh_f32(s / a.softcap);
    p[j] = s;
    if (j == first || s > out.m) out.m = s;
  }
  float lane[kLanes] = {};
  for (int j = first; j < last; j++) {
    p[j] = exp_f32(p[j] - out.m);
    lane[j % kLanes] += p[j];
  }
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  out.l = lane[0];
  mix(a.kv, span, p, out.o);
}

void merge(const Part& part, int dim, Part& all) {
  const float m = part.m > all.m ? part.m : all.m;
  const float keep = exp_f32(all.m - m), take = exp_f32(part.m - m);
  all.m = m;
  all.l = std::fma(all.l, keep, part.l * take);
  for (int d = 0; d < dim; d++) all.o[d] = std::fma(all.o[d], keep, part.o[d] * take);
}

}  // namespace

size_t attn_scratch_floats(const AttnArgs& a) {
  return (2 * kSpan + 2 * static_cast<size_t>(a.n_heads / a.kv.n_kv_heads)) * static_cast<size_t>(a.kv.head_dim + 2);
}

void attention(const AttnArgs& a, const AttnRow& row, int kv_head, int t_begin, int t_end, Rows q, Rows out, float* scratch) {
  const int heads = a.n_heads / a.kv.n_kv_heads, dim = a.kv.head_dim;
  Span span{0, 0, scratch, scratch + kSpan * dim, {}, {}};
  float* parts = span.v + kSpan * dim;  // m, l, o of each head: of all spans so far, then of this one
  const auto part = [&](int i) { return Part{parts[i * (dim + 2)], parts[i * (dim + 2) + 1], parts + i * (dim + 2) + 2}; };
  const auto keep = [&](int i, const Part& p) { parts[i * (dim + 2)] = p.m, parts[i * (dim + 2) + 1] = p.l; };
  for (int t = t_begin; t < t_end; t++) {
    const int pos = row.start + (t - row.first), first = a.window > 0 && pos - a.window + 1 > 0 ? pos - a.window + 1 : 0;
    const ptrdiff_t group = static_cast<ptrdiff_t>(kv_head) * heads * dim;
    for (int base = first / kSpan * kSpan; base <= pos; base += kSpan) {
      span.begin = base > first ? base : first, span.end = base + kSpan < pos + 1 ? base + kSpan : pos + 1;
      read_span(a.kv, row.table, kv_head, span);
      for (int h = 0; h < heads; h++) {
        const float* vector = q[t] + group + h * dim;
        const float most = largest(vector, dim);
        Part all = part(h), now = part(base <= first ? h : heads + h);
        span_part(a, {vector, fixed_step(most, kWordLevels), fixed_inverse(most, kWordLevels)}, span, now);
        if (base <= first) all = now;
        else merge(now, dim, all);
        keep(h, all);
      }
    }
    for (int h = 0; h < heads; h++) {
      const Part all = part(h);
      const float inv = 1.0f / all.l;
      for (int d = 0; d < dim; d++) out[t][group + h * dim + d] = std::fma(all.o[d], inv, 0.0f);
    }
  }
}

}  // namespace camshaft::ref
