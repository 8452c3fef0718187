# make demo    from a fresh clone to a trained model, in .venv
# make test    every test          make check   the fast loop
# make lint    style, types, imports          make clean   what can be made again
# make docs    the pages that follow from the code
#
# PYTHON  the Python to make .venv from, 3.11 or later
# TORCH   the requirement by which torch is installed: a version, or the path of a wheel

PYTHON ?= python3
TORCH ?= torch==2.13.0

BIN := .venv/bin
RUN := $(BIN)/python -m
PIP := $(RUN) pip install --quiet --disable-pip-version-check
DEMO := examples/tiny/tiny.par
# A worker for every core; files in the order of tests/conftest.py, the longest first.
SPREAD := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test check lint quick docs clean FORCE
.DELETE_ON_ERROR:

demo: .venv/installed
	$(BIN)/parlay compile $(DEMO) --target torch -o runs/demo
	$(BIN)/parlay run $(DEMO)

# Modules are kept compiled even where the environment says not to: each test process would else
# compile anew what it imports.
test quick: export PYTHONDONTWRITEBYTECODE =

test: .venv/installed-dev
	@$(RUN) pytest -q $(SPREAD)

# Types are asked beside the tests; what either says is told as it comes.
check: .venv/installed-dev
	@$(MAKE) --no-print-directory --jobs=2 lint quick

lint: .venv/installed-dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(RUN) mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > .venv/imports.log 2>&1 || { cat .venv/imports.log; exit 1; }

quick: .venv/installed-dev
	@$(RUN) pytest -q $(SPREAD) --hypothesis-profile=quick \
	  -m "not slow and not distributed and not oracle"

# The pages that follow from the code: the language reference, and what commands print.
docs: .venv/installed-dev
	@$(RUN) parlay.compiler.reference_docs

# ── The environment: each stamp is newer than what it was made from ───────────

.venv/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Parlay needs Python 3.11 or later: make PYTHON=/path/to/python3.11 ($(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1))" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { \
	  echo "the venv module is missing: on Debian and Ubuntu, apt install python3-venv" >&2; exit 1; }
	@touch $@

# Rewritten only when TORCH changes, so that another torch is installed and the same one is not.
.venv/torch: .venv/python FORCE
	@echo '$(TORCH)' | cmp -s - $@ || echo '$(TORCH)' > $@

.venv/installed: .venv/torch pyproject.toml
	$(PIP) '$(TORCH)'
	$(PIP) -e '.[torch]'
	@touch $@

.venv/installed-dev: .venv/installed
	$(PIP) -e '.[torch,dev]'
	@touch $@

clean:
	rm -rf runs build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .import_linter_cache .coverage
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
