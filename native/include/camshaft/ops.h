// The contract of every kernel. One table of functions per instruction set; ref/ holds the scalar twin that defines the result.
//
// THE RULE: for each kernel, every instruction set gives the bits that ref gives. It holds because the order of float operations is
// part of the contract, stated here, and because integer sums are exact in any order. Tests compare with memcmp.
//   - fma means one rounding (std::fma, or the instruction). Nothing else is contracted: build with -ffp-contract=off.
//   - A reduction over lanes uses hsum: ((l0+l8)+(l4+l12)) style halving: first i += i+8 for i<8, then i += i+4 for i<4, then i += i+2, then l0+l1.
//   - max is exact, so its order is free. exp is ours (exp_f32 below), the same polynomial everywhere.
//   - Rows whose length is not a multiple of 16 are processed as if padded with zeros (or the neutral element).
// Kernels do not allocate, lock, throw or read the environment. Pointers do not alias unless a contract says so.
#pragma once
#include "camshaft/formats.h"

namespace camshaft {

// ---------------------------------------------------------------------------------------------------------------- linear

// Quantised activations of `tokens` rows: int8 in groups of 32 along the input, with scale and sum per group. Opaque: the layout is
// the instruction set's own; size and writer come from its table. For x in a group: d = max|x| / 127 (one IEEE division),
// q = round-to-nearest-even(x * (1/d as one IEEE division 127/max|x|)), clamped to +-127; an all-zero group has d = 0, q = 0.
// sum = d * float(sum of q).
// A tower: the value of a group that stands so far over the others (sum of q^2 below kTowerBelow, d not 0) that they would be rounded away;
// the first of those with the largest |x|, by the bits. It is kept as it is, float32, and the group is quantised anew with 0 in its place, once:
// what stands over the rest stays there.
struct Acts {
  const uint8_t* data;
  int tokens, cols;
};

// y[t, r] = sum over inputs, for tokens [0, tokens) and output rows of tiles [tile_begin, tile_end).
// Order for int8 compute, per output: acc = 0; for g ascending: acc = fma(float(isum_g), d_w * d_a, acc); then for forms with a
// minimum acc = fma(m_w, sum_a, acc). q4s: isum is over (u - 8) * q. q8h: the two halves of a group in order, each with its own d_w. Then for
// each tower x_k of the token, k ascending: acc = fma(w_k, x_k, acc), with w_k as unpack_row gives it.
// Order for float compute (bf16 f16 f32 always; every form when compute is f32), per output: acc = 0; for k ascending: acc = fma(w_k, x_k, acc),
// with w_k as unpack_row gives it.
// Then, in order: + bias[r] if bias; y = acc, or y = y + acc if `accumulate` (residual).
struct LinearArgs {
  Packed w;
  Acts q;            // int8 compute
  Rows x;            // float compute: x.data is [tokens, cols], stride >= cols rounded up to 32, padding zero
  int tokens;
  const float* bias; // [rows] or null
  bool accumulate;
  Rows y;            // [tokens, rows]
};

// ------------------------------------------------------------------------------------------------------------- attention

enum class KvType : uint8_t { f32, bf16, int8 };

// One layer's part of the paged KV pool. A block holds block_size tokens of all kv heads of this layer, K at k + b * block_bytes and V at
// v + b * block_bytes for block b, each as [kv_head][block_size / 16] sub-blocks of 16 tokens:
//   f32, bf16   K [head_dim][16 tokens]                     so that a lane is a token
//               V [16 tokens][head_dim]
//   int8        K [head_dim / 2][16 tokens][2 dimensions]   so that a lane is a token and holds a pair of products to add
//               V [8][head_dim][2 tokens]                   likewise, a lane being a dimension
//               with head_dim rounded up to even (what is added is zero in K), and behind either 16 scales in bf16, one a token
// Unwritten elements are finite (zeroed pool).
inline size_t kv_sub_block_bytes(KvType type, int head_dim) {
  const size_t dim = static_cast<size_t>(head_dim);
  if (type == KvType::int8) return kSubBlock * (round_up(dim, 2) + sizeof(uint16_t));
  return kSubBlock * dim * (type == KvType::f32 ? sizeof(float) : sizeof(uint16_t));
}
constexpr int kMaxInt8HeadDim = 512;  // 512 products of 16 and 8 bits fit 32

struct KvLayer {
  uint8_t* k;
  uint8_t* v;
  size_t block_bytes;
  int block_size, n_kv_heads, head_dim;
  KvType type;
  size_t sub_block_bytes() const { return kv_sub_block_bytes(type, head_dim); }
  size_t head_bytes() const { return static_cast<size_t>(block_size / kSubBlock) * sub_block_bytes(); }  // of K, or of V, of one head
};

// A few integers and one step for a vector x, where int8 KV is concerned. With most = max|x| by the bits (so that infinity and NaN win) and
// n = 32767:  step = (most - most) + most / n, which is NaN where most is not finite;  inverse = n / most, but 0 where most is not finite or
// below 2^-100;  q = round-to-nearest-even(min(x * inverse, n)), min giving n for NaN. K and V have n = 127 and a step rounded up to bf16
// (NaN: 0x7fc0), of which inverse is the reciprocal. Divisions are IEEE's, and |q| <= n follows.

// Writes one token's K and V (float32 [n_kv_heads * head_dim] each) at `pos` through the row's block table. bf16 rounds to nearest even;
// int8 has q and step (scale) for each head's vector.
struct KvWriteArgs {
  KvLayer kv;
  const int32_t* table;  // block ids of this row and group
};

// One query token against the cache: positions max(0, pos - window + 1) .. pos. For each head h (kv head h / (n_heads / n_kv_heads)),
// spans of kSpan tokens at absolute multiples, ascending, those that hold a visible position. Per span, over its visible positions:
//   s_j = (fma over d ascending from 0 of q_d * k_jd) * scale; if softcap > 0: s = softcap * tanh_f32(s / softcap)
//     int8: s_j = (float(sum over d of q16_d * k_jd) * kscale_j) * (step * scale), where q16 and step are the query's with n = 32767
//   m = max s_j;  p_j = exp_f32(s_j - m), 0 where not visible;
//   l = hsum over 16 lanes, lane i having summed p_j for j = i mod 16, j ascending;   o_d = fma over j ascending of p_j * v_jd, from 0
//     int8: o_d = float(sum over j of w16_j * v_jd) * step, where step and inverse are those of the vscale_j with n = 32767, and
//     w16_j = round-to-nearest-even(min(p_j * (vscale_j * inverse), n))
// Merge into the running (M, L, O), starting from the first span itself: M' = max(M, m); a = exp_f32(M - M'), b = exp_f32(m - M');
//   L = fma(L, a, l * b); O_d = fma(O_d, a, o_d * b). At the end out_d = fma(O_d, 1 / L, 0) with one IEEE division: the 0 makes every zero
//   a +0, so that terms p_j = 0 of positions that only a neighbouring query sees may be summed along.
// K and V of positions that a query does not see never reach its result, unless they are NaN or infinite, visible to another query of
// the same call and so of the same sequence. Memory that no visible position wrote may hold anything; blocks with none may have any id.
struct AttnArgs {
  KvLayer kv;
  int n_heads;
  int window;            // 0: none
  float scale, softcap;  // softcap 0: none
};
// A row of the batch: token t has position start + (t - first).
struct AttnRow {
  const int32_t* table;
  int first, n_new, start;
};
// All query heads of kv_head, of tokens [t_begin, t_end) (batch token indices inside the row).
struct AttnQueries {
  int kv_head, t_begin, t_end;
};

// ------------------------------------------------------------------------------------------------------------ the table

struct Kernels {
  const char* name;  // ref, avx2, avx512

  size_t (*acts_bytes)(int tokens, int cols);
  // Quantises tokens [t_begin, t_end) of x; t_begin and, but for the last, t_end are multiples of kActUnit, so that threads
  // share nothing of the output.
  void (*quantize)(Rows x, int cols, int t_begin, int t_end, int tokens, uint8_t* acts);
  // linear_q[form] is null for bf16, f16 and f32.
  void (*linear_q[kForms])(const LinearArgs& a, int tile_begin, int tile_end);
  void (*linear_f[kForms])(const LinearArgs& a, int tile_begin, int tile_end);

  // y = x * (1 / sqrt(mean(x^2) + eps)) * w: ss = hsum of lanewise fma(x, x, lane); inv = 1.0f / sqrtf(ss / n + eps); y_i = (x_i * inv) * w_i. y may be x.
  void (*rms_norm)(const float* x, const float* w, int n, float eps, float* y);
  // In place on [n_heads, head_dim], half-split pairing over the first 2 * half: with c = cos[i], s = sin[i]:
  //   (a, b) = (x_i, x_{i+half}) -> (fma(a, c, -(b * s)), fma(b, c, a * s))
  void (*rope)(float* x, int n_heads, int head_dim, const float* cos, const float* sin, int half);
  // y_i = silu(gate_i) * up_i, silu(g) = g / (1 + exp_f32(-g));  gelu_tanh: (0.5 * g) * (1 + tanh_f32(0.7978845608f * fma(0.044715f * g * g, g, g))) * up
  // y may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, int n, float* y);
  void (*gelu_mul)(const float* gate, const float* up, int n, float* y);
  void (*add)(const float* a, const float* b, int n, float* y);      // y may be a or b
  void (*scale)(float* x, int n, float by);                          // in place
  void (*softcap)(float* x, int n, float cap);                       // in place: cap * tanh_f32(x / cap)

  void (*kv_write)(const KvWriteArgs& a, int pos, const float* k, const float* v);
  // q and out: [tokens, n_heads * head_dim]. scratch: attn_scratch_floats(args) floats private to the calling thread.
  void (*attention)(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, Rows q, Rows out, float* scratch);
  size_t (*attn_scratch_floats)(const AttnArgs& a);
  // The same in two steps, so that threads can share one long row. First each span of [span_begin, span_end) (span i: positions from
  // i * kSpan on) alone: m, l and o of all queries go to parts + (i - span_begin) * attn_part_floats(args, tokens), in the instruction set's
  // own layout. Then all spans that any of the queries sees are merged in order, into the first of them: the bits that `attention` gives.
  void (*attention_parts)(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, int span_begin, int span_end, Rows q, float* parts,
                          float* scratch);
  // The same for spans that need not stay apart, as those before them are there: `part` becomes what is merged of `before`, which holds all
  // spans before span_begin (null if there are none), and of [span_begin, span_end). It may be `before`, and is the first for attention_merge.
  void (*attention_prefix)(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, int span_begin, int span_end, Rows q,
                           const float* before, float* part, float* scratch);
  void (*attention_merge)(const AttnArgs& a, const AttnQueries& which, float* parts, int n_parts, Rows out);
  size_t (*attn_part_floats)(const AttnArgs& a, int tokens);

  // Sampling's heavy half, over one row of logits [n].
  int (*argmax)(const float* x, int n);                              // ties to the lowest index; -1 if any value is not finite (-inf is allowed, not all of them)
  float (*log_sum_exp)(const float* x, int n);                       // m + log(hsum of lanewise exp_f32(x - m)), log in double
  // p_i = exp_f32((x_i - max) * by), in float; returns their sum: 16 double lanes, lane i having summed p_j for j = i mod 16, then hsum in double.
  double (*exp_weights)(const float* x, int n, float max, float by, float* p);
};
constexpr int kActTile = 8;  // tokens whose activations an instruction set may interleave
constexpr int kActUnit = 4;  // tokens that are quantised together

// exp_f32: 0 exactly for x < -87.3, x above 88.7 counts as 88.7; t = fma(x, log2e, 1.5 * 2^23), n = t - 1.5 * 2^23 (to nearest even);
// r = fma(-n, ln2_hi, x), r = fma(-n, ln2_lo, r); p = 1 + r + r^2 * (minimax of degree 4) by Horner with fma; result = p * 2^n through the
// exponent bits. Coefficients in src/mathf.h. exp_f32(0) == 1 exactly, NaN stays NaN, within 1 unit in the last place of exp.
// tanh_f32(x) = 1 - 2 / (exp_f32(2x) + 1).

const Kernels& kernels_ref();
const Kernels* kernels_avx2();    // null where this build or machine cannot
const Kernels* kernels_avx512();

}  // namespace camshaft
