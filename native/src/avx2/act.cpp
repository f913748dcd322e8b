#include "../simd/vec256.h"
// The width comes first.
#include "../simd/act.inl"
