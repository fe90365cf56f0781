# Everything runs in a .venv of its own; whatever is missing comes from PyPI. Start with: make demo, make test.
# PYTHON=/path/to/python and CXX=/path/to/compiler choose others than the first that are found.

export PIP_DISABLE_PIP_VERSION_CHECK = 1
export MPLBACKEND = Agg

VENV := .venv
# The images of two experiments: an .npz or a folder of IDX files (docs/federated.md says how to get them).
MNIST ?= ../shared/data/mnist.npz
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip
CMAKE := $(VENV)/bin/cmake
# Folders are listed too: they change when a file is added or removed.
CPP_SOURCES := CMakeLists.txt $(shell find csrc)
CPP_FILES = $(shell find csrc tests/cpp -name '*.hpp' -o -name '*.cpp')
CPP_CONFIGURE := -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(VENV)/bin/ninja" \
    -DFUSIONOPT_BUILD_PYTHON=OFF -DFUSIONOPT_BUILD_TESTS=ON
PYPI_FAILED := { echo "fusionopt: pip could not do this (its words are above): check that PyPI can be reached and that the disk has 2 GB free." >&2; exit 1; }

.PHONY: help demo test test-cpp test-python test-browser soak lint format types imports sanitize dist bench experiments clean FORCE

help:
	@echo 'make demo      the main job on the wine data: path, clustering, certificate, report'
	@echo 'make test      C++ tests and Python tests'
	@echo 'make test-browser  the explorer page in headless Chromium'
	@echo 'make soak      paths killed 50 times end in the same bits (minutes)'
	@echo 'make lint      ruff and clang-format, read only; make format rewrites'
	@echo 'make types     mypy --strict'
	@echo 'make imports   the arrows between the rooms'
	@echo 'make sanitize  C++ tests with the address and undefined-behaviour sanitizers'
	@echo 'make dist      source archive and wheel, installed and tried in a second environment'
	@echo 'make bench     benchmarks: the sweep beside memory and NumPy, solves beside other tools'
	@echo 'make clean     remove all that was made here'

demo: $(VENV)/built
	@$(RUN) -m fusionopt path examples/data/wine.csv --labels-column cultivar --standardise \
	    --graph knn --n-neighbors 10 --select plateau --out build/demo --force

test: test-cpp test-python

test-cpp: $(VENV)/dev
	@mkdir -p build
	@$(CMAKE) -S . -B build/cpp $(CPP_CONFIGURE) -DCMAKE_BUILD_TYPE=Release >build/cpp.log || { cat build/cpp.log; exit 1; }
	@$(CMAKE) --build build/cpp
	@$(VENV)/bin/ctest --test-dir build/cpp --output-on-failure --no-tests=error

test-python: $(VENV)/dev
	$(RUN) -m pytest

# Not named test_*: only this target collects it, for it needs a browser that PyPI does not have.
test-browser: $(VENV)/dev
	$(RUN) -m pytest tests/browser/page_explorer.py

soak: $(VENV)/built
	$(RUN) -m benchmarks.soak

sanitize: $(VENV)/dev
	@mkdir -p build
	@$(CMAKE) -S . -B build/sanitize $(CPP_CONFIGURE) -DCMAKE_BUILD_TYPE=Debug \
	    -DFUSIONOPT_SANITIZE=address,undefined >build/sanitize.log || { cat build/sanitize.log; exit 1; }
	@$(CMAKE) --build build/sanitize
	@$(VENV)/bin/ctest --test-dir build/sanitize --output-on-failure --no-tests=error

lint: $(VENV)/dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	@$(VENV)/bin/clang-format --dry-run -Werror $(CPP_FILES)

format: $(VENV)/dev
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .
	@$(VENV)/bin/clang-format -i $(CPP_FILES)

types: $(VENV)/dev
	$(RUN) -m mypy

imports: $(VENV)/dev
	$(VENV)/bin/lint-imports

dist: $(VENV)/built
	@$(RUN) .ci/check_dist.py

bench: $(VENV)/built
	$(RUN) -m benchmarks.sweep
	$(RUN) -m benchmarks.compare
	$(RUN) -m benchmarks.paths

experiments: $(VENV)/built $(VENV)/torch
	$(RUN) -m benchmarks.recovery_figures
	$(RUN) -m benchmarks.subgroups
	$(RUN) -m benchmarks.selection
	$(RUN) -m benchmarks.implicit
	$(RUN) -m benchmarks.federated --out benchmarks/results/federated.csv
	$(RUN) -m benchmarks.fpfc_table1 --out benchmarks/results/fpfc_table1.csv
	$(RUN) -m benchmarks.fedsoft_table1 --out benchmarks/results/fedsoft_table1.csv
	$(RUN) -m benchmarks.cfl_toys --out benchmarks/results
	$(RUN) -m benchmarks.large --mnist $(MNIST)
	$(RUN) -m benchmarks.fpfc --out benchmarks/results/fpfc_table.csv
	$(RUN) -m benchmarks.fpfc_server
	$(RUN) -m benchmarks.fpfc_scale
	$(RUN) -m benchmarks.label_swap --data $(MNIST)
	$(RUN) -m benchmarks.imbalance --data $(MNIST)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# A .venv and a CMake cache hold absolute paths: in a moved or copied folder they would silently work on the old one.
ifneq ($(shell cat $(VENV)/path 2>/dev/null),$(CURDIR))
$(VENV)/path: FORCE
endif
$(VENV)/path:
	@python=$$(sh .ci/preflight) || exit 1; \
	rm -rf $(VENV) build/cp3* build/cpp build/sanitize; \
	echo "Setting up $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "fusionopt: $$python could not make the folder $(VENV): install its venv module (Debian 12: apt-get install python3-venv) and check the disk." >&2; \
	    exit 1; }
	@printf '%s' '$(CURDIR)' >$@

# What pyproject.toml requires for building and running; the project itself is built by the next rule.
$(VENV)/base: $(VENV)/path pyproject.toml
	@echo "Installing what fusionopt needs from PyPI into $(VENV) (a few minutes the first time)"
	@$(RUN) .ci/requirements.py build run >$(VENV)/base.txt
	@$(PIP) install -q -r $(VENV)/base.txt || $(PYPI_FAILED)
	@touch $@

# Editable: Python files are used where they lie, so only a change in C++ or in the build asks for this again.
$(VENV)/built: $(VENV)/base $(CPP_SOURCES)
	@PYTHON=$(RUN) sh .ci/preflight >/dev/null
	@echo "Building fusionopt"
	@mkdir -p build
	@$(PIP) install -q --no-build-isolation --no-deps -e . || \
	    { echo "fusionopt: the build failed; the compiler's words are above." >&2; exit 1; }
	@$(RUN) -c 'import fusionopt._core'
	@touch $@

# Only the experiments on images need it.
$(VENV)/torch: $(VENV)/built
	@echo "Installing PyTorch into $(VENV)"
	@$(RUN) .ci/requirements.py torch >$(VENV)/torch.txt
	@$(PIP) install -q -r $(VENV)/torch.txt || $(PYPI_FAILED)
	@touch $@

$(VENV)/dev: $(VENV)/built
	@echo "Installing the tools for tests from PyPI into $(VENV)"
	@$(RUN) .ci/requirements.py dev >$(VENV)/dev.txt
	@$(PIP) install -q -r $(VENV)/dev.txt || $(PYPI_FAILED)
	@touch $@
