// Any Python object with a contiguous buffer, as bytes, for as long as this lives. Create and destroy with the GIL held.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>

namespace camshaft {

class HeldBuffer {
 public:
  explicit HeldBuffer(nanobind::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nanobind::python_error();
  }
  ~HeldBuffer() {
    if (view_.obj) PyBuffer_Release(&view_);
  }
  HeldBuffer(HeldBuffer&& o) noexcept : view_(o.view_) { o.view_.obj = nullptr; }
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;
  std::span<const uint8_t> bytes() const { return {static_cast<const uint8_t*>(view_.buf), size_t(view_.len)}; }

 private:
  Py_buffer view_{};
};

// A token mask's bytes as the words that they are; valid while `mask` lives.
inline std::span<const uint32_t> words_of(const HeldBuffer& mask) {
  const auto bytes = mask.bytes();
  if (bytes.size() % 4 || reinterpret_cast<uintptr_t>(bytes.data()) % 4) throw nanobind::value_error("a mask is not made of aligned 32-bit words");
  return {reinterpret_cast<const uint32_t*>(bytes.data()), bytes.size() / 4};
}

}  // namespace camshaft
