#include "roofline.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "camshaft/cpu.h"
#include "camshaft/pool.h"
#include "memory.h"

namespace camshaft {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// A read of every byte that nothing can skip, in eight independent sums so that loads and not additions set the pace.
uint64_t sweep(const uint8_t* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    uint64_t line[8];
    std::memcpy(line, data + i, 64);
    for (int j = 0; j < 8; ++j) sums[j] += line[j];
  }
  uint64_t all = 0;
  for (uint64_t s : sums) all += s;
  return all;
}

double dram_gb_s(ThreadPool& pool) {
  constexpr int kSweeps = 10, kPieces = 1024;
  constexpr size_t kPiece = size_t{1} << 20;
  const Pages pages(kPieces * kPiece);
  auto fill = [&](int begin, int end, int) { std::memset(pages.data() + size_t(begin) * kPiece, 1, size_t(end - begin) * kPiece); };
  pool.run(kPieces, 8, fill);
  std::atomic<uint64_t> sink{0};
  auto read = [&](int begin, int end, int) { sink += sweep(pages.data() + size_t(begin) * kPiece, size_t(end - begin) * kPiece); };
  double best = 1e9;
  for (int i = 0; i < kSweeps; ++i) {
    const auto start = Clock::now();
    pool.run(kPieces, 8, read);
    best = std::min(best, since(start));
  }
  return double(pages.size()) / best / 1e9;
}

double int8_gop_s(ThreadPool& pool, const DotLoop& loop, double seconds) {
  std::atomic<int> sink{0};
  int rounds = 1000;
  double best = 0;
  const auto begin = Clock::now();
  do {
    auto body = [&](int b, int e, int) { for (int i = b; i < e; ++i) sink += loop.run(rounds, i); };
    const auto start = Clock::now();
    pool.run(pool.size() * 4, 1, body);
    const double took = since(start);
    best = std::max(best, loop.ops_per_round * rounds * pool.size() * 4 / took / 1e9);
    if (took < seconds / 10) rounds *= 2;
  } while (since(begin) < seconds);
  return best;
}

}  // namespace

#ifndef CAMSHAFT_X86
DotLoop dot_loop_avx2() { return dot_loop_ref(); }
DotLoop dot_loop_avx512() { return dot_loop_ref(); }
#endif

std::pair<double, double> roofline(int threads, const std::string& isa, double seconds) {
  const std::string name = select_kernels(isa).name;
  const DotLoop loop = name == "avx512" ? dot_loop_avx512() : name == "avx2" ? dot_loop_avx2() : dot_loop_ref();
  ThreadPool pool(threads > 0 ? threads : usable_cores());
  return {dram_gb_s(pool), int8_gop_s(pool, loop, std::clamp(seconds, 0.05, 60.0))};
}

}  // namespace camshaft
