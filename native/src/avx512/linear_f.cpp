#include "../simd/tiles512.h"
// The width comes first.
#include "../simd/linear_f.inl"
