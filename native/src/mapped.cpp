#include "camshaft/mapped.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "camshaft/checksum.h"
#include "camshaft/pool.h"

namespace camshaft {

MappedFile::MappedFile(int fd) {
  struct stat found;
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size <= 0) throw std::invalid_argument("only a file that is not empty can be mapped");
  size_ = size_t(found.st_size);
  void* p = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) throw std::invalid_argument("the file cannot be mapped");
#ifdef MADV_HUGEPAGE
  madvise(p, size_, MADV_HUGEPAGE);  // where the file system has large pages in its cache, they are mapped as such
#endif
  data_ = static_cast<const uint8_t*>(p);
}

MappedFile::~MappedFile() { munmap(const_cast<uint8_t*>(data_), size_); }

bool MappedFile::intact(std::span<const Stretch> stretches, int threads) const {
  for (const Stretch& s : stretches)
    if (s.offset > size_ || s.bytes > size_ - s.offset) return false;
  std::atomic<bool> good{true};
  auto body = [&](int begin, int end, int) {
    for (int i = begin; i < end && good; ++i) {
      const Stretch& s = stretches[size_t(i)];
      if (checksum(data_ + s.offset, s.bytes) != s.checksum) good = false;
    }
  };
  ThreadPool pool(threads);
  pool.run(int(stretches.size()), 1, body);
  return good;
}

}  // namespace camshaft
