// The shapes and forms that the linear kernels' tests and benchmark run.
#pragma once
#include "camshaft/ops.h"

namespace camshaft::test {

constexpr Form kAllForms[] = {Form::q4, Form::q4s, Form::q5, Form::q8, Form::q8h, Form::bf16, Form::f16, Form::f32};
constexpr const char* kFormNames[] = {"q4", "q4s", "q5", "q8", "q8h", "bf16", "f16", "f32"};
constexpr bool is_integer(Form form) { return form <= Form::q8h; }

struct LinearShape {
  int rows, cols;
};
// One tile; a row more and a row less than tiles; inputs that end inside a group (float forms and weights quantised at load have them);
// more tiles than a kernel keeps in flight; real sizes.
constexpr LinearShape kLinearShapes[] = {{16, 32}, {1, 32}, {17, 64}, {31, 96}, {15, 33}, {33, 100}, {5, 1}, {72, 256}, {192, 576}, {40, 1536}};
// Every number of tokens around a kernel's pass and the quantiser's tile, and more than a block of them.
constexpr int kTokenCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 19, 23, 24, 25, 40, 65};

// The matrices of SmolLM2-135M: K and V, Q and O, gate and up, down, the head.
constexpr LinearShape kBenchShapes[] = {{192, 576}, {576, 576}, {1536, 576}, {576, 1536}, {49152, 576}};

}  // namespace camshaft::test
