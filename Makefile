# make demo, make test, make lint, make types, make docs, make package, make bench, make audit, make fuzz, make clean.
# Settings: PYTHON=python3.12 (3.10 to 3.14), TORCH="torch==2.13.0" (what pip is asked for where no torch with CUDA is
# there), VENV=.venv, ARGS for pytest: make test ARGS="-k packaging". The tests use all cores; ARGS="-n 0" uses one.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
ARGS ?=

BIN = $(VENV)/bin
RUN = $(BIN)/python
# --no-compile: a module is compiled when it is first imported; most of torch's never are.
PIP = $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile
# `python -m TOOL` and never bin/TOOL: a console script puts bin/ first on its path, where our parse.py would be taken
# for PyPI's parse.

# Stamps carry the Python's version, so that another PYTHON makes another environment.
TAG := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PYTHON_THERE = $(VENV)/.python-$(TAG)
TORCH_THERE = $(VENV)/.torch-$(TAG)
BASE = $(VENV)/.base-$(TAG)
DEV = $(VENV)/.dev-$(TAG)

# The tests start some hundred processes of pyprof: each would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: all demo test lint types docs package bench audit fuzz clean
all: test

$(PYTHON_THERE): tools/make_venv.py
	$(PYTHON) tools/make_venv.py $(VENV)
	touch $@

$(TORCH_THERE): $(PYTHON_THERE)
	@$(RUN) -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' \
	  || { echo "installing $(TORCH) into $(VENV), which takes minutes the first time"; $(PIP) $(TORCH); }
	touch $@

$(BASE): $(TORCH_THERE) setup.py pyprof/_version.py
	$(PIP) -e .
	touch $@

$(DEV): $(BASE)
	@$(RUN) -c 'import torch._inductor.config' & $(PIP) -e '.[dev]' && wait # another core compiles torch's modules
	touch $@

demo: $(BASE)
	$(RUN) -m pyprof demo -o build/demo

test: $(DEV)
	$(RUN) -m pytest -q -n auto --dist worksteal $(ARGS)

lint: $(DEV)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

# On an installed copy: mypy follows no editable install into parse/ and prof/, checks three files and says Success.
types: $(DEV)
	rm -rf build/lib build/typed
	$(PIP) --no-deps --no-build-isolation --target build/typed .
	$(RUN) -m mypy build/typed/pyprof

docs: $(DEV)
	$(RUN) tools/check_docs.py
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet
	$(RUN) tools/check_site.py

# The sdist, the wheel made of it, and the software bill of materials, into dist/; the wheel tried where nothing else is.
package: $(DEV)
	rm -rf dist build/package
	$(RUN) -m build --outdir dist .
	$(RUN) tools/check_package.py dist build/package

bench: $(DEV)
	@for script in tests/bench/bench_*.py; do \
	  if [ -e "$$script" ]; then $(RUN) "$$script" || exit 1; else echo "no benchmark is written yet"; fi; \
	done

# Known faults of the installed dependencies and of the lower bounds in setup.py, by PyPI's advisories. It also fails
# where they cannot be read; .ci/run lets that pass: make audit AUDIT=--may-be-unknown
audit: $(DEV)
	$(PIP) 'pip-audit>=2.10'
	$(RUN) tools/check_advisories.py $(AUDIT)
	$(RUN) tools/check_advisories.py --bounds $(AUDIT)

# Damaged files under every command: make fuzz ARGS="--cases 100000 --seed 7 --folder build/fuzz"
fuzz: $(DEV)
	$(RUN) -m tests.fuzz $(ARGS)

clean:
	rm -rf $(VENV) build dist torch_pyprof.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
