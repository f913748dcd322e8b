#pragma once
#include <nanobind/nanobind.h>

#include <string>

#include "camshaft/formats.h"
#include "camshaft/program.h"

namespace camshaft {

inline Form form_called(const std::string& name) {
  Form form;
  if (!form_named(name, form)) throw nanobind::value_error(("no packed form is called '" + name + "'").c_str());
  return form;
}

void bind_strings(nanobind::module_& m);
void bind_packed(nanobind::module_& m);
void bind_builder(nanobind::module_& m);
void bind_program(nanobind::module_& m);
void bind_step(nanobind::class_<Program>& c);
}  // namespace camshaft
