// Every kernel by name, once per instruction set. The contracts are in camshaft/ops.h; each folder's table.cpp fills a Kernels from these.
//
// A folder defines what it is faster at and nothing else: table.cpp sees weak declarations and takes ref's function where the folder has
// none. acts_bytes, quantize and linear_q_* belong together, since the layout of Acts is theirs alone: define all of them or none.
//
// Helpers in headers that several folders include are `static inline` (or in an anonymous namespace): of plain `inline` copies the linker
// keeps one for everybody, and that one may hold instructions which the machine lacks.
#pragma once
#include "camshaft/ops.h"

// table.cpp defines this as a weak attribute before it includes us; everybody else sees plain declarations.
#ifndef CAMSHAFT_DECL
#define CAMSHAFT_DECL
#endif

#define CAMSHAFT_KERNELS(isa)                                                                                                        \
  namespace camshaft::isa {                                                                                                          \
  CAMSHAFT_DECL size_t acts_bytes(int tokens, int cols);                                                                             \
  CAMSHAFT_DECL void quantize(Rows x, int cols, int t_begin, int t_end, int tokens, uint8_t* acts);                                  \
  CAMSHAFT_DECL void linear_q_q4(const LinearArgs& a, int tile_begin, int tile_end);                                                 \
  CAMSHAFT_DECL void linear_q_q4s(const LinearArgs& a, int tile_begin, int tile_end);                                                \
  CAMSHAFT_DECL void linear_q_q5(const LinearArgs& a, int tile_begin, int tile_end);                                                 \
  CAMSHAFT_DECL void linear_q_q8(const LinearArgs& a, int tile_begin, int tile_end);                                                 \
  CAMSHAFT_DECL void linear_q_q8h(const LinearArgs& a, int tile_begin, int tile_end);                                                \
  CAMSHAFT_DECL void linear_f_q4(const LinearArgs& a, int tile_begin, int tile_end);                                                 \
  CAMSHAFT_DECL void linear_f_q4s(const LinearArgs& a, int tile_begin, int tile_end);                                                \
  CAMSHAFT_DECL void linear_f_q5(const LinearArgs& a, int tile_begin, int tile_end);                                                 \
  CAMSHAFT_DECL void linear_f_q8(const LinearArgs& a, int tile_begin, int tile_end);                                                 \
  CAMSHAFT_DECL void linear_f_q8h(const LinearArgs& a, int tile_begin, int tile_end);                                                \
  CAMSHAFT_DECL void linear_f_bf16(const LinearArgs& a, int tile_begin, int tile_end);                                               \
  CAMSHAFT_DECL void linear_f_f16(const LinearArgs& a, int tile_begin, int tile_end);                                                \
  CAMSHAFT_DECL void linear_f_f32(const LinearArgs& a, int tile_begin, int tile_end);                                                \
  CAMSHAFT_DECL void rms_norm(const float* x, const float* w, int n, float eps, float* y);                                           \
  CAMSHAFT_DECL void rope(float* x, int n_heads, int head_dim, const float* cos, const float* sin, int half);                        \
  CAMSHAFT_DECL void silu_mul(const float* gate, const float* up, int n, float* y);                                                  \
  CAMSHAFT_DECL void gelu_mul(const float* gate, const float* up, int n, float* y);                                                  \
  CAMSHAFT_DECL void add(const float* a, const float* b, int n, float* y);                                                           \
  CAMSHAFT_DECL void scale(float* x, int n, float by);                                                                               \
  CAMSHAFT_DECL void softcap(float* x, int n, float cap);                                                                            \
  CAMSHAFT_DECL void kv_write(const KvWriteArgs& a, int pos, const float* k, const float* v);                                        \
  CAMSHAFT_DECL void attention(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, Rows q, Rows out, float* scratch);    \
  CAMSHAFT_DECL size_t attn_scratch_floats(const AttnArgs& a);                                                                       \
  CAMSHAFT_DECL void attention_parts(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, int span_begin, int span_end,  \
                                     Rows q, float* parts, float* scratch);                                                          \
  CAMSHAFT_DECL void attention_prefix(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, int span_begin, int span_end, \
                                      Rows q, const float* before, float* part, float* scratch);                                     \
  CAMSHAFT_DECL void attention_merge(const AttnArgs& a, const AttnQueries& which, float* parts, int n_parts, Rows out);              \
  CAMSHAFT_DECL size_t attn_part_floats(const AttnArgs& a, int tokens);                                                              \
  CAMSHAFT_DECL int argmax(const float* x, int n);                                                                                   \
  CAMSHAFT_DECL float log_sum_exp(const float* x, int n);                                                                            \
  CAMSHAFT_DECL double exp_weights(const float* x, int n, float max, float by, float* p);                                            \
  }

CAMSHAFT_KERNELS(ref)
CAMSHAFT_KERNELS(avx2)
CAMSHAFT_KERNELS(avx512)
