// How an instruction set's table is filled: its own function where the folder defines one, else ref's. Include from table.cpp only.
#pragma once
#define CAMSHAFT_DECL __attribute__((weak, visibility("default")))
#include "kernels_decl.h"

namespace camshaft {

template <class F> F* first_of(F* mine, F* reference) { return mine ? mine : reference; }

#define CAMSHAFT_PICK(isa, f) first_of(&isa::f, &ref::f)

// clang-format off
#define CAMSHAFT_TABLE(isa)                                                                                         \
  Kernels {                                                                                                         \
    .name = #isa,                                                                                                   \
    .acts_bytes = CAMSHAFT_PICK(isa, acts_bytes),                                                                   \
    .quantize = CAMSHAFT_PICK(isa, quantize),                                                                       \
    .linear_q = {CAMSHAFT_PICK(isa, linear_q_q4), CAMSHAFT_PICK(isa, linear_q_q4s), CAMSHAFT_PICK(isa, linear_q_q5),\
                 CAMSHAFT_PICK(isa, linear_q_q8), CAMSHAFT_PICK(isa, linear_q_q8h), nullptr, nullptr, nullptr},     \
    .linear_f = {CAMSHAFT_PICK(isa, linear_f_q4), CAMSHAFT_PICK(isa, linear_f_q4s), CAMSHAFT_PICK(isa, linear_f_q5),\
                 CAMSHAFT_PICK(isa, linear_f_q8), CAMSHAFT_PICK(isa, linear_f_q8h), CAMSHAFT_PICK(isa, linear_f_bf16),\
                 CAMSHAFT_PICK(isa, linear_f_f16), CAMSHAFT_PICK(isa, linear_f_f32)},                               \
    .rms_norm = CAMSHAFT_PICK(isa, rms_norm),                                                                       \
    .rope = CAMSHAFT_PICK(isa, rope),                                                                               \
    .silu_mul = CAMSHAFT_PICK(isa, silu_mul),                                                                       \
    .gelu_mul = CAMSHAFT_PICK(isa, gelu_mul),                                                                       \
    .add = CAMSHAFT_PICK(isa, add),                                                                                 \
    .scale = CAMSHAFT_PICK(isa, scale),                                                                             \
    .softcap = CAMSHAFT_PICK(isa, softcap),                                                                         \
    .kv_write = CAMSHAFT_PICK(isa, kv_write),                                                                       \
    .attention = CAMSHAFT_PICK(isa, attention),                                                                     \
    .attn_scratch_floats = CAMSHAFT_PICK(isa, attn_scratch_floats),                                                 \
    .attention_parts = CAMSHAFT_PICK(isa, attention_parts),                                                         \
    .attention_prefix = CAMSHAFT_PICK(isa, attention_prefix),                                                       \
    .attention_merge = CAMSHAFT_PICK(isa, attention_merge),                                                         \
    .attn_part_floats = CAMSHAFT_PICK(isa, attn_part_floats),                                                       \
    .argmax = CAMSHAFT_PICK(isa, argmax),                                                                           \
    .log_sum_exp = CAMSHAFT_PICK(isa, log_sum_exp),                                                                 \
    .exp_weights = CAMSHAFT_PICK(isa, exp_weights),                                                                 \
  }
// clang-format on

}  // namespace camshaft
