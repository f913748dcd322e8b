// exp and tanh of mathf.h over 16 lanes, and loads of row tails. Include vec256.h or vec512.h before: they say what V16 is and which
// namespace (CAMSHAFT_ISA) a kernel lands in, so that no code of one instruction set is ever shared with another.
#pragma once
#include "../mathf.h"
#include "camshaft/view.h"

namespace camshaft::CAMSHAFT_ISA {

// exp_f32 for x <= kExpMax, which a softmax's arguments are: the same bits with one operation less.
inline V16 exp_small(V16 x) {
  const V16 magic = set1(kRoundMagic), one = set1(1.0f);
  const V16 t = fma(x, set1(kLog2e), magic), n = sub(t, magic);
  const V16 r = fnma(n, set1(kLn2Lo), fnma(n, set1(kLn2Hi), x));
  V16 p = fma(set1(kExpC6), r, set1(kExpC5));
  p = fma(p, r, set1(kExpC4));
  p = fma(p, r, set1(kExpC3));
  p = fma(p, r, set1(kExpC2));
  p = fma(p, r, one);
  p = fma(p, r, one);
  return zero_below(add_exponent(p, t), x, kExpMin);
}
inline V16 exp(V16 x) { return exp_small(min(set1(kExpMax), x)); }  // this order of operands lets NaN through
inline V16 tanh(V16 x) {
  const V16 one = set1(1.0f), two = set1(2.0f);
  return sub(one, div(two, add(exp(mul(two, x)), one)));
}

// Calls body(i, n) for each vector of a row of `length` floats: n lanes from i on. Whole vectors first, then the tail.
template <class Body> inline void for_lanes(int length, Body body) {
  int i = 0;
  for (; i + kLanes <= length; i += kLanes) body(i, kLanes);
  if (i < length) body(i, length - i);
}
inline V16 load_up_to(const float* p, int n) { return n == kLanes ? load(p) : load_n(p, n); }
inline void store_up_to(float* p, V16 v, int n) { n == kLanes ? store(p, v) : store_n(p, v, n); }

}  // namespace camshaft::CAMSHAFT_ISA
