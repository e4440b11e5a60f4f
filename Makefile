# `make demo` and `make test` need nothing but Python 3.11 or newer, pip and make.
#
#   PY=python3.12     the Python that `.venv` is made with
#   VENV=path         an environment to use instead of `.venv`; hotset is installed into it once
#   ARGS='…'          handed on to the demo, the benchmark or pytest

PY ?= python3
VENV ?= .venv
ARGS ?=

PYTHON := $(VENV)/bin/python
DEMO := $(VENV)/.hotset-demo
DEV := $(VENV)/.hotset-dev

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two installs into one environment must not run at once, whatever -j says.
.NOTPARALLEL:
.PHONY: help demo test check static format-check lint types layers format bench gpu clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(DEMO) ## one training, through a plain DataLoader and through hotset, compared
	$(VENV)/bin/hotset demo $(ARGS)

# Triton reads TRITON_INTERPRET when it is imported, and the choice holds for the whole process:
# the interpreter's tests get one of their own. Both run, and either one's failure is the target's.
test: $(DEV) ## the tests
	@status=0; set -x; \
	$(PYTHON) -m pytest --ignore=tests/triton $(ARGS) || status=$$?; \
	TRITON_INTERPRET=1 $(PYTHON) -m pytest tests/triton || status=$$?; \
	exit $$status

check: static test ## every check: format, lint, types, layers, tests

static: format-check lint types layers ## every check but the tests

format-check: $(DEV)
	$(VENV)/bin/ruff format --check .

lint: $(DEV)
	$(VENV)/bin/ruff check .

types: $(DEV)
	$(VENV)/bin/mypy

layers: $(DEV)
	$(VENV)/bin/lint-imports

format: $(DEV) ## formats, and mends what the linter can mend
	$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .

bench: $(DEMO) ## the published comparison, as ratios
	$(VENV)/bin/hotset bench cifar $(ARGS)

gpu: $(DEV) ## the tests that need a CUDA device
	$(PYTHON) -m pytest -m gpu $(ARGS)

clean: ## removes caches and builds, and leaves the environment
	rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are older than pyproject.toml exactly when something has to be installed again.
$(DEMO): pyproject.toml | $(VENV)/bin/pip
	$(PYTHON) -m pip install -e '.[demo]'
	@touch $@

$(DEV): pyproject.toml | $(VENV)/bin/pip
	$(PYTHON) -m pip install -e '.[dev]'
	@touch $(DEMO) $@

# pip, not python, is the sign of a whole environment: where `ensurepip` is missing, `venv` fails
# but leaves a python behind.
$(VENV)/bin/pip:
	@$(PY) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("hotset needs Python 3.11 or newer, but " + sys.executable + " is " + sys.version.split()[0] + "; name another: make PY=python3.12 …")'
	$(PY) -m venv $(VENV)
