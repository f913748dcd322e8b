#pragma once
#include <nanobind/nanobind.h>

namespace camshaft {
void bind_builder(nanobind::module_& m);
void bind_program(nanobind::module_& m);
}  // namespace camshaft
