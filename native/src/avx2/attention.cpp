#include "../simd/pairs256.h"
// The width comes first.
#include "../simd/attention.inl"
