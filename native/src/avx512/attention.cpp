#include "../simd/pairs512.h"
// The width comes first.
#include "../simd/attention.inl"
