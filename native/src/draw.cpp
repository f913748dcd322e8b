#include "draw.h"

#include <algorithm>
#include <cmath>

namespace camshaft {

Drawer::Drawer(const Kernels& kernels, int n, Arena& arena) : kernels_(kernels), n_(n), p_(arena.floats(size_t(n))) {
  bucket_of_ = reinterpret_cast<int32_t*>(arena.floats(size_t(n)));
  ids_ = reinterpret_cast<int32_t*>(arena.floats(size_t(n)));
}

int Drawer::draw(const float* x, int best, const DrawParams& params, double u) {
  constexpr float kColdest = 1e-6f;  // below it the quotient could overflow; the draw is greedy long before
  x_ = x;
  weigh(x, x[best], 1.0f / std::max(params.temperature, kColdest));
  Cut cut = whole();
  if (params.top_k > 0) cut = cut_top_k(cut, params.top_k);
  if (params.top_p < 1.0f) cut = cut_top_p(cut, params.top_p);
  if (params.min_p > 0.0f) cut = cut_min_p(cut, params.min_p);
  return pick(cut, u);
}

void Drawer::weigh(const float* x, float max, float by) {
  kernels_.exp_weights(x, n_, max, by, p_);
  // Rounding is monotone, so a larger logit never falls into a later bucket.
  for (int i = 0; i < n_; ++i) bucket_of_[i] = int32_t(std::min((max - x[i]) * by * float(kPerNat), float(kBuckets - 1)));
  std::fill(&bins_[0][0], &bins_[0][0] + kWays * kBuckets, Bin{});
  for (int i = 0; i < n_; ++i) {
    Bin& bin = bins_[i % kWays][bucket_of_[i]];
    ++bin.count;
    bin.mass += double(p_[i]);
  }
  for (int b = 0; b < kBuckets; ++b) {
    count_[b] = 0, mass_[b] = 0;
    for (int way = 0; way < kWays; ++way) count_[b] += bins_[way][b].count, mass_[b] += bins_[way][b].mass;
  }
  ranked_ = -1;
}

std::span<const int32_t> Drawer::ranked(int bucket) {
  const size_t n = size_t(count_[bucket]);
  if (ranked_ != bucket) {
    int32_t* end = ids_;
    for (int i = 0; i < n_; ++i)
      if (bucket_of_[i] == bucket) *end++ = i;
    std::sort(ids_, end, [this](int32_t a, int32_t b) { return x_[a] != x_[b] ? x_[a] > x_[b] : a < b; });
    ranked_ = bucket;
  }
  return {ids_, n};
}

double Drawer::mass_within(int bucket, int within) {
  if (within == count_[bucket]) return mass_[bucket];
  double mass = 0;
  for (int32_t id : ranked(bucket).first(size_t(within))) mass += double(p_[id]);
  return mass;
}

Drawer::Cut Drawer::whole() const {
  double mass = 0;
  for (int b = 0; b < kBuckets - 1; ++b) mass += mass_[b];
  return {kBuckets - 1, 0, mass};  // the last bucket's weights are zeros
}

Drawer::Cut Drawer::cut_top_k(const Cut& c, int k) {
  int before = 0;
  double mass = 0;
  for (int b = 0; b < c.bucket; ++b) {
    if (before + count_[b] >= k) return {b, k - before, mass + mass_within(b, k - before)};
    before += count_[b];
    mass += mass_[b];
  }
  return c;
}

Drawer::Cut Drawer::cut_top_p(const Cut& c, double p) {
  const double wanted = p * c.mass;
  double mass = 0;
  for (int b = 0; b <= c.bucket; ++b) {
    const int size = b < c.bucket ? count_[b] : c.within;
    const double whole = mass_within(b, size);
    if (mass + whole >= wanted) {
      int within = 0;
      for (int32_t id : ranked(b).first(size_t(size))) {
        mass += double(p_[id]);
        ++within;
        if (mass >= wanted) break;
      }
      return {b, within, mass};
    }
    mass += whole;
  }
  return c;
}

Drawer::Cut Drawer::cut_min_p(const Cut& c, float p) {
  // Buckets well before the bound hold only larger weights; the one before the bound's own is looked at for rounding's sake.
  const int bound = std::max(0, int(-std::log(double(p)) * kPerNat) - 1);
  double mass = 0;
  for (int b = 0; b <= c.bucket; ++b) {
    const int size = b < c.bucket ? count_[b] : c.within;
    if (b < bound) {
      mass += mass_within(b, size);
      continue;
    }
    double part = 0;
    int within = 0;
    for (int32_t id : ranked(b).first(size_t(size))) {
      if (p_[id] < p) return {b, within, mass + part};
      part += double(p_[id]);
      ++within;
    }
    mass += mass_within(b, size);
  }
  return c;
}

int Drawer::pick(const Cut& c, double u) {
  const double point = u * c.mass;
  double mass = 0;
  int last = -1;
  for (int b = 0; b <= c.bucket; ++b) {
    const int size = b < c.bucket ? count_[b] : c.within;
    if (size == 0) continue;
    const double whole = mass_within(b, size);
    if (mass + whole <= point) {
      mass += whole;
      last = b;
      continue;
    }
    for (int32_t id : ranked(b).first(size_t(size))) {
      mass += double(p_[id]);
      if (mass > point) return id;
    }
    last = b;
  }
  // Sums in another order may round to less than the point: then it is the last kept candidate.
  const int size = last < c.bucket ? count_[last] : c.within;
  return ranked(last)[size_t(size - 1)];
}

}  // namespace camshaft
