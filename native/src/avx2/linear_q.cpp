// Matrix products of packed integer weights with int8 activations.
#include "kernels_decl.h"
#include "many_tokens.h"
#include "one_token.h"

namespace camshaft::avx2 {
namespace {

constexpr int kMany = kMost + 1;  // so many tokens are worth decoding a tile of levels into memory

template <class Tile>
void linear_q(const LinearArgs& a, int tile_begin, int tile_end) {
  const ActLayout at{a.q.tokens, a.w.groups()};
  if (a.tokens == 1) return one_token<Tile>(a, at, tile_begin, tile_end);
  if constexpr (requires { &Tile::u; })
    if (a.tokens >= kMany) return many_tokens<Tile>(a, at, tile_begin, tile_end);
  few_tokens<Tile>(a, at, tile_begin, tile_end);
}

}  // namespace

void linear_q_q4(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ4>(a, tile_begin, tile_end); }
void linear_q_q4s(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ4s>(a, tile_begin, tile_end); }
void linear_q_q5(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ5>(a, tile_begin, tile_end); }
void linear_q_q8(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ8>(a, tile_begin, tile_end); }
void linear_q_q8h(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ8h>(a, tile_begin, tile_end); }

}  // namespace camshaft::avx2
