# Everything runs in .venv, made from constraints.txt on first use.
#   make test      everything that the gate runs: lint, types, unit tests, file tests
#   make demo      compile examples/gemm.tile for both chips and run it, on GPUs where there are any, else simulated
#   make nightly   the long tests
# PYTHON chooses the interpreter of the environment; PYTEST_ARGS goes to pytest (for example "-n 2").

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3.14 python3,$(shell command -v $(p))))
PYTEST_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: test demo lint format typecheck unittest filetests nightly venv clean

test: lint typecheck unittest filetests

demo: $(INSTALLED)
	$(BIN)/python -m tileir.tools.demo

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(INSTALLED)
	$(BIN)/pyright --pythonpath $(BIN)/python

unittest: $(INSTALLED)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

filetests: $(INSTALLED)
	$(BIN)/lit -v tests/filetests

nightly: $(INSTALLED)
	$(BIN)/python -m pytest -m nightly $(PYTEST_ARGS)

venv: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no python3 found; install Python 3.11 or newer, or set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: the pinned dependencies need Python 3.11 or newer, $(PYTHON) is older; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "error: $(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt setuptools
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt --no-build-isolation --editable '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
