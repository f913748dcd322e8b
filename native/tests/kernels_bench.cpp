// Speed of the small kernels and of attention on one thread: medians, beside what the core can do.
//   kernels_bench [isa ...]      default: every instruction set of this machine but ref
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>

#include "camshaft/cpu.h"
#include "kernel_cases.h"
#include "random.h"

namespace {

using namespace camshaft;
using namespace camshaft::test;

using Floats = std::vector<float>;

// Of this thread's processor time: neighbours that take turns on the core do not count.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double median(Floats values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

template <class F> double timed(int calls, F call) {
  const double start = now();
  for (int i = 0; i < calls; i++) call();
  return (now() - start) / calls;
}

struct Timing {
  double seconds, yardsticks;  // of one call: its time, and how many yardsticks would have fitted in it
};

// Medians over 9 samples of at least 4 ms. Each sample is followed by one of the yardstick (what the core does at its best), since the
// speed of a shared machine changes from one second to the next.
template <class F, class Y> Timing measure(F call, Y yardstick) {
  int calls = 1;
  while (timed(calls, call) * calls < 0.004 && calls < 1 << 24) calls *= 2;
  Floats times, ratios;
  for (int i = 0; i < 9; i++) {
    const double took = timed(calls, call);
    times.push_back(static_cast<float>(took));
    ratios.push_back(static_cast<float>(took / timed(1, yardstick)));
  }
  return {median(times), median(ratios)};
}

#if defined(__x86_64__)
typedef float Wide __attribute__((vector_size(32)));
constexpr double kFmaFlops = 2.0 * 8 * 12 * 30'000;
// 12 independent chains of 256-bit fused multiply-adds, kFmaFlops operations.
__attribute__((target("avx2,fma"))) void fma_loop() {
  Wide a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, i{}, j{}, k{}, l{};
  for (int n = 0; n < 30'000; n++)
    asm volatile(
        "vfmadd231ps %%ymm15, %%ymm15, %0\n vfmadd231ps %%ymm15, %%ymm15, %1\n vfmadd231ps %%ymm15, %%ymm15, %2\n"
        "vfmadd231ps %%ymm15, %%ymm15, %3\n vfmadd231ps %%ymm15, %%ymm15, %4\n vfmadd231ps %%ymm15, %%ymm15, %5\n"
        "vfmadd231ps %%ymm15, %%ymm15, %6\n vfmadd231ps %%ymm15, %%ymm15, %7\n vfmadd231ps %%ymm15, %%ymm15, %8\n"
        "vfmadd231ps %%ymm15, %%ymm15, %9\n vfmadd231ps %%ymm15, %%ymm15, %10\n vfmadd231ps %%ymm15, %%ymm15, %11\n"
        : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h), "+x"(i), "+x"(j), "+x"(k), "+x"(l));
}
#else
constexpr double kFmaFlops = 0;
void fma_loop() {}
#endif

constexpr size_t kReadBytes = size_t{64} << 20;
// Reads kReadBytes of 128 MiB, the half that the last call did not read.
void read_loop() {
  static std::vector<uint64_t> memory(2 * kReadBytes / 8, 1);
  static size_t from = 0;
  static volatile uint64_t sink = 0;
  uint64_t sum[8] = {};
  for (size_t i = from; i < from + kReadBytes / 8; i += 8)
    for (size_t j = 0; j < 8; j++) sum[j] += memory[i + j];
  for (uint64_t s : sum) sink = sink + s;
  from = kReadBytes / 8 - from;
}

struct Shape {
  const char* name;
  AttnCase c;
};
constexpr Shape kPrefill[] = {
    {"smollm2-135m 0 + 512", {9, 3, 64, 32, kBf16, 0, 0, 0, 512}},
    {"smollm2-135m 0 + 512, int8", {9, 3, 64, 32, kInt8, 0, 0, 0, 512}},
    {"smollm2-135m 2048 + 256", {9, 3, 64, 32, kBf16, 0, 0, 2048, 256}},
    {"smollm2-135m 0 + 512, f32", {9, 3, 64, 32, kF32, 0, 0, 0, 512}},
    {"llama 32/8 x 128, 512 + 128", {32, 8, 128, 32, kBf16, 0, 0, 512, 128}},
    {"qwen2-0.5b 14/2 x 64, 0 + 512", {14, 2, 64, 32, kBf16, 0, 0, 0, 512}},
    {"gemma3-270m 0 + 512", {4, 1, 256, 32, kBf16, 0, 0, 0, 512}},
    {"gemma3-270m window 512, 2048 + 256", {4, 1, 256, 32, kBf16, 512, 0, 2048, 256}},
    {"phi 4/4 x 80, 0 + 512", {4, 4, 80, 32, kBf16, 0, 0, 0, 512}},
};
constexpr Shape kDecode[] = {
    {"smollm2-135m at 512", {9, 3, 64, 32, kBf16, 0, 0, 511, 1}},
    {"smollm2-135m at 4096", {9, 3, 64, 32, kBf16, 0, 0, 4095, 1}},
    {"smollm2-135m at 4096, block 16", {9, 3, 64, 16, kBf16, 0, 0, 4095, 1}},
    {"smollm2-135m at 4096, f32", {9, 3, 64, 32, kF32, 0, 0, 4095, 1}},
    {"smollm2-135m at 4096, int8", {9, 3, 64, 32, kInt8, 0, 0, 4095, 1}},
    {"llama 32/8 x 128 at 4096, int8", {32, 8, 128, 32, kInt8, 0, 0, 4095, 1}},
    {"32/32 x 128 at 4096, int8", {32, 32, 128, 32, kInt8, 0, 0, 4095, 1}},
    {"llama 32/8 x 128 at 4096", {32, 8, 128, 32, kBf16, 0, 0, 4095, 1}},
    {"32/32 x 128 at 4096", {32, 32, 128, 32, kBf16, 0, 0, 4095, 1}},
    {"gemma3-270m at 4096", {4, 1, 256, 32, kBf16, 0, 0, 4095, 1}},
};

// `layers` caches of one sequence, their blocks scattered; with enough of them a call finds no K and V in the caches of the core.
struct Caches {
  AttnCase c;
  AttnArgs args;
  int layers, calls = 0;
  size_t layer_bytes;
  std::vector<uint8_t> pool;
  std::vector<int32_t> table;
  Floats q, out, scratch;

  Caches(const Kernels& kernels, const AttnCase& shape, int n_layers) : c(shape), layers(n_layers) {
    const int n_blocks = ceil_div(c.start + c.n_new, c.block_size);
    layer_bytes = n_blocks * block_bytes(c);
    pool.resize(2 * layer_bytes * layers);
    Random random(1);
    auto* words = reinterpret_cast<uint16_t*>(pool.data());
    for (size_t i = 0; i < pool.size() / 2; i++) words[i] = static_cast<uint16_t>(0x3c00 + random.bits() % 0x300);
    for (int i = 0; i < n_blocks; i++) table.push_back(static_cast<int32_t>((static_cast<int64_t>(i) * 7919) % n_blocks));
    args = {{nullptr, nullptr, block_bytes(c), c.block_size, c.n_kv_heads, c.head_dim, c.type}, c.n_heads, c.window, 0.125f, c.softcap};
    q = random.floats(static_cast<size_t>(c.n_heads) * c.head_dim * c.n_new);
    out.resize(q.size());
    scratch.resize(kernels.attn_scratch_floats(args));
  }
  void run(const Kernels& kernels) {
    args.kv.k = pool.data() + 2 * layer_bytes * (calls++ % layers);
    args.kv.v = args.kv.k + layer_bytes;
    const int64_t width = static_cast<int64_t>(c.n_heads) * c.head_dim;
    const AttnRow row{table.data(), 0, c.n_new, c.start};
    for (int h = 0; h < c.n_kv_heads; h++)
      kernels.attention(args, row, {h, 0, c.n_new}, {q.data(), width}, {out.data(), width}, scratch.data());
  }
};

double visible_pairs(const AttnCase& c) {
  double pairs = 0;
  for (int seen = c.start + 1; seen <= c.start + c.n_new; seen++) pairs += c.window > 0 ? std::min(c.window, seen) : seen;
  return pairs;
}

void print_row(const char* name, double seconds, double amount, double percent) {
  std::printf("%-36s %10.1f %10.1f %7.0f%%\n", name, seconds * 1e6, amount / seconds / 1e9, percent);
}

void bench_attention(const Kernels& kernels) {
  std::printf("%-36s %10s %10s %8s\n", "prefill", "us", "GFLOP/s", "of peak");
  for (const Shape& shape : kPrefill) {
    Caches caches(kernels, shape.c, 1);
    const Timing t = measure([&] { caches.run(kernels); }, fma_loop);
    const double flops = 4 * visible_pairs(shape.c) * shape.c.n_heads * shape.c.head_dim;
    print_row(shape.name, t.seconds, flops, 100 * flops / kFmaFlops / t.yardsticks);
  }
  std::printf("%-36s %10s %10s %8s\n", "decode", "us", "GB/s", "of read");
  for (const Shape& shape : kDecode) {
    const size_t once = Caches(kernels, shape.c, 1).pool.size();
    Caches caches(kernels, shape.c, static_cast<int>(std::max<size_t>(1, (size_t{192} << 20) / once)));
    const Timing t = measure([&] { caches.run(kernels); }, read_loop);
    const double bytes = static_cast<double>(once);
    print_row(shape.name, t.seconds, bytes, 100 * bytes / static_cast<double>(kReadBytes) / t.yardsticks);
  }
}

void bench_rows(const Kernels& kernels) {
  constexpr int n = 1536;
  Random random(2);
  Floats x = random.floats(n, 4.0f), y = random.floats(n), z(n);
  const auto show = [](const char* name, auto call) {
    const double took = measure(call, fma_loop).seconds;
    std::printf("%-36s %10.1f ns, %.2f ns a vector of 16\n", name, took * 1e9, took * 1e9 * 16 / n);
  };
  show("rms_norm 1536", [&] { kernels.rms_norm(x.data(), y.data(), n, 1e-5f, z.data()); });
  show("silu_mul 1536", [&] { kernels.silu_mul(x.data(), y.data(), n, z.data()); });
  show("gelu_mul 1536", [&] { kernels.gelu_mul(x.data(), y.data(), n, z.data()); });
  show("add 1536", [&] { kernels.add(x.data(), y.data(), n, z.data()); });
  show("softcap 1536", [&] { kernels.softcap(z.data(), n, 30.0f); });
  show("rope 24 x 64", [&] { kernels.rope(x.data(), 24, 64, y.data(), y.data() + 32, 32); });
  std::vector<uint8_t> pool(1 << 20);
  const int32_t table[1] = {0};
  const KvWriteArgs args{{pool.data(), pool.data() + (1 << 19), 1 << 19, 32, 8, 96, kBf16}, table};
  show("kv_write 8 x 96 bf16, K and V", [&] { kernels.kv_write(args, 5, x.data(), x.data() + 768); });
}

}  // namespace

int main(int argc, char** argv) {
  read_loop();  // touches its memory
  const double fma = measure(fma_loop, fma_loop).seconds, read = measure(read_loop, fma_loop).seconds;
  const double bytes = static_cast<double>(kReadBytes);
  std::printf("one thread: %.1f GFLOP/s of 256-bit FMA, %.1f GB/s of reads\n", kFmaFlops / fma / 1e9, bytes / read / 1e9);
  for (const std::string& isa : available_isas()) {
    const bool named = std::any_of(argv + 1, argv + argc, [&](const char* name) { return isa == name; });
    if (argc > 1 ? !named : isa == "ref") continue;
    const Kernels& kernels = select_kernels(isa);
    std::printf("-- %s\n", kernels.name);
    bench_attention(kernels);
    bench_rows(kernels);
  }
}
