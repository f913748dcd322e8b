// What this machine can do at most: the two numbers that speeds are stated as shares of.
#pragma once
#include <string>
#include <utility>

namespace camshaft {

// (DRAM read GB/s, int8 GOP/s), by `threads` threads; 0 takes usable_cores(). The first is the best of 10 read-only sweeps by all threads
// over 1 GiB; the second a dot-product loop in registers with the instruction that `isa`'s kernels use, two operations a
// multiplication with its addition, for about `seconds`.
std::pair<double, double> roofline(int threads, const std::string& isa, double seconds);

// One thread's share: runs the dot loop `rounds` times and returns a value that depends on all of it. Operations per round: kDotOps.
struct DotLoop {
  int (*run)(int rounds, int seed);
  double ops_per_round;
};
DotLoop dot_loop_ref();
DotLoop dot_loop_avx2();
DotLoop dot_loop_avx512();

}  // namespace camshaft
