// The smallest test harness that says what failed: CHECK counts and prints, RUN names a test, result() is main's return value.
#pragma once
#include <cstdio>

namespace camshaft::test {

inline int failures = 0;

inline void fail(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what);
  ++failures;
}

inline int result() {
  if (failures) std::fprintf(stderr, "%d check(s) failed\n", failures);
  return failures != 0;
}

}  // namespace camshaft::test

#define CHECK(condition) \
  do { \
    if (!(condition)) camshaft::test::fail(__FILE__, __LINE__, #condition); \
  } while (false)
#define RUN(test) (std::printf("%s\n", #test), std::fflush(stdout), test())
