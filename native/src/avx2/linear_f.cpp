#include "../simd/tiles256.h"
// The width comes first.
#include "../simd/linear_f.inl"
