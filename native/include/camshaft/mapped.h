// A file as read-only memory, and a check of what lies in it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace camshaft {

// Bytes [offset, offset + bytes) of a file, and the checksum that they had when they were written.
struct Stretch {
  uint64_t offset, bytes, checksum;
};

// Owns the map, not the descriptor. The pages are the system's own copy of the file: processes that map the same file share them.
class MappedFile {
 public:
  explicit MappedFile(int fd);  // throws std::invalid_argument for what is empty or cannot be mapped
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Whether every stretch lies in the file and still has its checksum. Reads them all, by `threads` threads, which also maps their pages.
  bool intact(std::span<const Stretch> stretches, int threads) const;

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace camshaft
