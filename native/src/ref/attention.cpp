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
  const float most = largest(span.v_scale + first, last - first), inverse = fixed_inverse(most, kWordLevels);
  for (int d = 0; d < dim; d++) {
    int32_t sum = 0;
    for (int j = first; j < last; j++) sum += to_level(p[j], span.v_scale[j] * inverse, kWordLevels) * static_cast<int32_t>(span.v[j * dim + d]);
    o[d] = static_cast<float>(sum) * fixed_step(most, kWordLevels);
  }
}

// Of a span, or of all spans so far: m, l and o[head_dim] of the contract, in this order.
struct Part {
  float &m, &l;
  float* o;
  explicit Part(float* at) : m(at[0]), l(at[1]), o(at + 2) {}
  static int floats(const AttnArgs& a) { return a.kv.head_dim + 2; }
};

void span_part(const AttnArgs& a, const Query& query, const Span& span, Part out) {
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

// Parts of the heads of one token, side by side, from the span that begins at `base`. What a token does not see has no maximum and adds 0.
void token_parts(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, int t, int base, const float* q, float* parts, float* scratch) {
  const int heads = a.n_heads / a.kv.n_kv_heads, dim = a.kv.head_dim;
  const int pos = row.start + (t - row.first), first = a.window > 0 && pos - a.window + 1 > 0 ? pos - a.window + 1 : 0;
  Span span{base > first ? base : first, base + kSpan < pos + 1 ? base + kSpan : pos + 1, scratch, scratch + kSpan * dim, {}, {}};
  read_span(a.kv, row.table, which.kv_head, span);
  for (int h = 0; h < heads; h++, parts += Part::floats(a)) {
    Part part(parts);
    if (span.begin >= span.end) {
      part.m = -3.402823466e38f, part.l = 0.0f;
      for (int d = 0; d < dim; d++) part.o[d] = 0.0f;
      continue;
    }
    const float* vector = q + static_cast<ptrdiff_t>(which.kv_head * heads + h) * dim;
    const float most = largest(vector, dim);
    span_part(a, {vector, fixed_step(most, kWordLevels), fixed_inverse(most, kWordLevels)}, span, part);
  }
}

void merge(const Part& part, int dim, Part all) {
  const float m = part.m > all.m ? part.m : all.m;
  const float keep = exp_f32(all.m - m), take = exp_f32(part.m - m);
  all.m = m;
  all.l = std::fma(all.l, keep, part.l * take);
  for (int d = 0; d < dim; d++) all.o[d] = std::fma(all.o[d], keep, part.o[d] * take);
}

}  // namespace

size_t attn_scratch_floats(const AttnArgs& a) {
  const size_t heads = static_cast<size_t>(a.n_heads / a.kv.n_kv_heads);
  return 2 * kSpan * static_cast<size_t>(a.kv.head_dim) + 2 * heads * static_cast<size_t>(Part::floats(a));
}

size_t attn_part_floats(const AttnArgs& a, int tokens) {
  return static_cast<size_t>(tokens * (a.n_heads / a.kv.n_kv_heads)) * static_cast<size_t>(Part::floats(a));
}

void attention_parts(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, int span_begin, int span_end, Rows q, float* parts,
                     float* scratch) {
  for (int i = span_begin; i < span_end; i++)
    for (int t = which.t_begin; t < which.t_end; t++, parts += attn_part_floats(a, 1)) token_parts(a, row, which, t, i * kSpan, q[t], parts, scratch);
}

void attention_prefix(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, int span_begin, int span_end, Rows q,
                      const float* before, float* part, float* scratch) {
  const int heads = a.n_heads / a.kv.n_kv_heads, dim = a.kv.head_dim;
  if (before && before != part) std::memcpy(part, before, attn_part_floats(a, which.t_end - which.t_begin) * sizeof(float));
  float* now = scratch + 2 * kSpan * dim + heads * Part::floats(a);
  for (int i = span_begin; i < span_end; i++) {
    float* all = part;
    for (int t = which.t_begin; t < which.t_end; t++, all += attn_part_floats(a, 1)) {
      const bool first = !before && i == span_begin;
      token_parts(a, row, which, t, i * kSpan, q[t], first ? all : now, scratch);
      for (int h = 0; h < heads && !first; h++) merge(Part(now + h * Part::floats(a)), dim, Part(all + h * Part::floats(a)));
    }
  }
}

void attention_merge(const AttnArgs& a, const AttnQueries& which, float* parts, int n_parts, Rows out) {
  const int heads = a.n_heads / a.kv.n_kv_heads, dim = a.kv.head_dim, n = (which.t_end - which.t_begin) * heads;
  for (int i = 0; i < n; i++) {
    const auto part = [&](int j) { return Part(parts + static_cast<ptrdiff_t>(j * n + i) * Part::floats(a)); };
    const Part all = part(0);
    for (int j = 1; j < n_parts; j++) merge(part(j), dim, all);
    float* to = out[which.t_begin + i / heads] + static_cast<ptrdiff_t>(which.kv_head * heads + i % heads) * dim;
    const float inv = 1.0f / all.l;
    for (int d = 0; d < dim; d++) to[d] = std::fma(all.o[d], inv, 0.0f);
  }
}

void attention(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, Rows q, Rows out, float* scratch) {
  const int heads = a.n_heads / a.kv.n_kv_heads, dim = a.kv.head_dim;
  float *all = scratch + 2 * kSpan * dim, *now = all + heads * Part::floats(a);  // of the heads: all spans so far, and this one
  for (int t = which.t_begin; t < which.t_end; t++) {
    const int pos = row.start + (t - row.first), first = a.window > 0 && pos - a.window + 1 > 0 ? pos - a.window + 1 : 0;
    for (int base = first / kSpan * kSpan; base <= pos; base += kSpan) {
      token_parts(a, row, which, t, base, q[t], base <= first ? all : now, scratch);
      for (int h = 0; h < heads && base > first; h++) merge(Part(now + h * Part::floats(a)), dim, Part(all + h * Part::floats(a)));
    }
    attention_merge(a, {which.kv_head, t, t + 1}, all, 1, out);
  }
}

}  // namespace camshaft::ref
