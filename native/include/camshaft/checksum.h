// A checksum of stored bytes: it finds damage, not malice.
#pragma once
#include <cstddef>
#include <cstdint>

namespace camshaft {

// XXH64 with seed 0 (Y. Collet, "xxHash fast digest algorithm", doc/xxhash_spec.md of the xxHash project, section "XXH64 algorithm").
uint64_t checksum(const void* data, size_t bytes);

}  // namespace camshaft
