# On a machine with nothing but Python 3.11 or newer: make demo, make test, make check, make faults.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt
# Both packages are built by what the tests need anyway, installed once, where pip would install it for each of them;
# and all is compiled by every core, where pip uses one. A template in a package need not be Python.
BUILT := $(PIP) --no-compile hatchling editables && $(PIP) --no-compile --no-build-isolation
COMPILED := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
DESCRIBED := pyproject.toml worker/pyproject.toml constraints.txt

.PHONY: demo test test-again check faults faults-write chaos bench docs clean

demo: $(VENV)/.base  ## a server, a worker and a pipeline over both; DEMO=--keep leaves them up
	$(BIN)/farhand demo $(DEMO)

# Two processes more than there are cores, for most of what takes long waits for other processes. tests/conftest.py
# has the files of few and long tests come first, and the units, which are short and many, keep every process busy to
# the end. The reordering that is switched off would put the long ones last.
COUNT := $(shell $(PYTHON) -c 'import os; print(2 + (os.cpu_count() or 1))')
PROCESSES := --numprocesses=$(COUNT) --maxprocesses=6 --dist=loadfile --no-loadscope-reorder

test: $(VENV)/.test  ## every test; TESTS=tests/unit narrows it
	@$(BIN)/python -m tests.optional
	$(BIN)/python -m pytest $(PROCESSES) $(TESTS)

test-again: $(VENV)/.test  ## those that failed last, one after another
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures=none

check: $(VENV)/.check  ## formatting, lints, types, import rules and the tests of the documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --quiet tests/docs

faults: $(VENV)/.test  ## the fault tests, with what each provokes and how long it took
	@$(BIN)/python -m tests.optional
	$(BIN)/python -m pytest --quiet $(PROCESSES) -m fault -p tests.fault_report $(FAULTS)

faults-write:  ## the same, and writes the times it measured into docs/faults.md: on a machine that does nothing else
	@$(MAKE) --no-print-directory faults FAULTS=--faults-write

chaos: $(VENV)/.test  ## runs go on while everything is killed, frozen and cut off; SEEDS="1 2 3" for rounds of before
	$(BIN)/python -m tests.chaos $(SEEDS)

bench: $(VENV)/.base  ## speeds, as ratios to references measured in the same run
	$(BIN)/python -m benchmarks

docs: $(VENV)/.check  ## write the generated pages of docs/ anew
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'farhand needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ...' >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.base: $(VENV)/.python $(DESCRIBED)
	$(PIP) --editable ./worker --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.python $(DESCRIBED)
	$(BUILT) --editable ./worker --editable '.[test]'
	@$(COMPILED)
	@touch $@ $(VENV)/.base

$(VENV)/.check: $(VENV)/.python $(DESCRIBED)
	$(BUILT) --editable ./worker --editable '.[test,check,examples]'
	@$(COMPILED)
	@touch $@ $(VENV)/.base $(VENV)/.test
