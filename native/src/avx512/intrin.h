// The AVX-512 intrinsics: the compiler's own, or, under CAMSHAFT_EMULATE_AVX512, SIMDe's emulation of them on AVX2 and FMA, so that a
// machine without AVX-512 can check the bits. What SIMDe lacks is written out below.
#pragma once

#ifndef CAMSHAFT_EMULATE_AVX512
// GCC 12 takes its own header's deliberately undefined registers for ours.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#ifndef __FMA__
#error "emulate with -mavx2 -mfma: without them SIMDe's fmadd rounds twice"
#endif
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <immintrin.h>

#include <simde/x86/avx512.h>
#endif
