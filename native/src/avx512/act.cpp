#include "../simd/vec512.h"
// The width comes first.
#include "../simd/act.inl"
