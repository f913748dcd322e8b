// Speed of the linear kernels on one thread: GB/s of packed weights for one token, GOP/s (2 per multiply-add) for more, beside what
// this core can do: a read-only sweep of memory, and AVX2's usual dot loop (vpmaddubsw, vpmaddwd, vpaddd) in registers.
//   linear_bench [isa] [form ...]
// A window is some milliseconds long and the best of many counts, since a busy neighbour only ever slows one down.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "camshaft/cpu.h"
#include "cases.h"
#include "linear_inputs.h"

namespace {

using namespace camshaft;
using namespace camshaft::test;

// Of this thread's own time, which others on the same core do not take.
double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

// The shortest time of body, in 0.3 s of tries.
template <class Body>
double best_seconds(Body body) {
  double best = 1e9;
  for (const double start = seconds(); seconds() - start < 0.3;) {
    const double begin = seconds();
    body();
    best = std::min(best, seconds() - begin);
  }
  return best;
}

// The median time of body(i) for i in [0, n), over passes of 0.5 s: a preemption in one of many short pieces does not count.
template <class Body>
double median_seconds(int n, Body body) {
  std::vector<double> times;
  for (const double start = seconds(); seconds() - start < 0.5;)
    for (int i = 0; i < n; i++) {
      const double begin = seconds();
      body(i);
      times.push_back(seconds() - begin);
    }
  std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// One matrix after another of at least 128 MB in all, so that weights come from memory; or one alone, which stays in cache if it fits.
void one_token(const Kernels& k, Form form, LinearShape s, bool cold) {
  Random random(1);
  const size_t bytes = packed_bytes(form, s.rows, s.cols);
  const size_t n = cold ? std::max<size_t>(1, (128u << 20) / bytes) : 1;
  const Matrix m = random_matrix(form, s.rows * int(n), s.cols, random);
  Inputs x(1, s.cols, random);
  const auto acts = x.quantised(k);
  std::vector<float> y(size_t(m.w.rows));
  const LinearArgs args{m.w, {acts.get(), 1, s.cols}, x.rows(), 1, nullptr, false, {y.data(), m.w.rows}};
  const auto kernel = k.linear_q[size_t(form)] ? k.linear_q[size_t(form)] : k.linear_f[size_t(form)];
  const int tiles = std::min(96, s.rows / kRowTile);
  const double median = median_seconds(m.w.tiles() / tiles, [&](int i) { kernel(args, i * tiles, (i + 1) * tiles); });
  std::printf("%-5s %6dx%-5d 1 token, %s  %7.1f GB/s\n", kFormNames[int(form)], s.rows, s.cols, cold ? "memory" : "cache ",
              double(packed_bytes(form, tiles * kRowTile, s.cols)) / median * 1e-9);
}

// Lets one value tower over the others in `share` of all groups.
void raise_towers(Inputs& x, float share, Random& random) {
  for (int t = 0; t < x.tokens; t++)
    for (int g = 0; g < x.cols / kGroup; g++)
      if (random.uniform(0, 1) < share) x.rows()[t][g * kGroup + 5] = 50.0f;
}

void many_tokens(const Kernels& k, Form form, LinearShape s, bool floats, float towers) {
  Random random(2);
  const int rows = std::min(s.rows, 1536);
  const Matrix m = random_matrix(form, rows, s.cols, random);
  std::printf("%-5s %6dx%-5d %s, %2.0f %% towers", kFormNames[int(form)], rows, s.cols, floats ? "f32 " : "int8", double(100 * towers));
  for (int tokens : {2, 3, 4, 8, 16, 64, 128, 512}) {
    // As the program does it: blocks of tokens whose activations stay in the second-level cache.
    const int block = std::min(tokens, std::max(32, (192 << 10) / s.cols / kActTile * kActTile));
    Inputs x(block, s.cols, random);
    raise_towers(x, towers, random);
    const auto acts = x.quantised(k);
    std::vector<float> y(size_t(block) * size_t(rows));
    const LinearArgs args{m.w, {acts.get(), block, s.cols}, x.rows(), block, nullptr, false, {y.data(), rows}};
    const auto kernel = floats ? k.linear_f[size_t(form)] : k.linear_q[size_t(form)];
    const int some = std::min(m.w.tiles(), 12);
    const double best = best_seconds([&] { kernel(args, 0, some); });
    std::printf("  %d:%.0f", tokens, 2.0 * block * some * kRowTile * s.cols / best * 1e-9);
  }
  std::printf(" GOP/s\n");
}

void quantising(const Kernels& k) {
  Random random(3);
  Inputs x(64, 576, random);
  auto acts = aligned_bytes(k.acts_bytes(64, 576));
  const double best = best_seconds([&] { k.quantize(x.rows(), 576, 0, 64, 64, acts.get()); });
  std::printf("quantize 64 x 576: %.2f ns a value\n", best / (64 * 576) * 1e9);
}

void packing() {
  Random random(4);
  const int rows = 1536, cols = 576;
  for (FileType type : {FileType::Q4_0, FileType::Q4_1, FileType::Q5_0, FileType::Q8_0, FileType::F16}) {
    const size_t bytes = file_row_bytes(type, cols) * rows;
    const Form form = form_of(type);
    std::vector<uint8_t> file(bytes);
    fill_bytes(file.data(), bytes, random);
    auto out = aligned_bytes(packed_bytes(form, rows, cols));
    const double best = best_seconds([&] { pack_tiles(form, type, file.data(), rows, cols, nullptr, 0, ceil_div(rows, kRowTile), out.get()); });
    std::printf("pack file type %d to %s: %.2f GB/s\n", int(type), kFormNames[int(form)], double(bytes) / best * 1e-9);
  }
  std::vector<float> x(size_t(rows) * cols);
  for (float& v : x) v = random.uniform(-1, 1);
  for (Form form : {Form::q8, Form::q4}) {
    auto out = aligned_bytes(packed_bytes(form, rows, cols));
    const double best = best_seconds([&] { pack_tiles(form, FileType::F32, reinterpret_cast<uint8_t*>(x.data()), rows, cols, nullptr, 0, rows / kRowTile, out.get()); });
    std::printf("quantise f32 to %s: %.1f million weights/s\n", kFormNames[int(form)], double(rows) * cols / best * 1e-6);
  }
}

void sweep() {
  const size_t n = (256u << 20) / 8;
  std::vector<uint64_t> v(n, 1);
  uint64_t sum = 0;
  const size_t piece = n / 512;
  const double median = median_seconds(512, [&](int at) {
    uint64_t s[8] = {};
    for (size_t i = size_t(at) * piece; i < size_t(at + 1) * piece; i += 8) {
      __builtin_prefetch(&v[i] + 256);
      for (int j = 0; j < 8; j++) s[j] += v[i + size_t(j)];
    }
    for (uint64_t one : s) sum += one;
  });
  std::printf("memory sweep, one thread: %.1f GB/s (%d)\n", double(piece) * 8 / median * 1e-9, int(sum & 1));
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Kernels& k = select_kernels(argc > 1 ? argv[1] : "");
  std::vector<std::string> wanted(argv + std::min(argc, 2), argv + argc);
  std::printf("%s\n", k.name);
  if (wanted.empty()) sweep(), quantising(k), packing();
  for (Form form : kAllForms) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), kFormNames[int(form)]) == wanted.end()) continue;
    for (const LinearShape& s : kBenchShapes) {
      if (s.rows == 49152 && form != Form::q8) continue;
      one_token(k, form, s, true);
      if (s.rows == 1536) one_token(k, form, s, false);
      if (s.rows != 49152 && s.rows != 192 && is_integer(form)) many_tokens(k, form, s, false, 0), many_tokens(k, form, s, false, 0.08f);
      if (s.rows == 576) many_tokens(k, form, s, true, 0);
    }
  }
}
