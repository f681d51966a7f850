# Needs python3 (3.11 or newer), make and a package registry; everything else is installed into .venv by the first call.
#   make demo PYTHON=python3.12    another interpreter: .venv is made anew
#   make demo ARGS=--stay          arguments for the command

PYTHON  ?= python3
VENV    ?= .venv
# Test processes at a time; 0 runs all tests in one process. More than cores: they often wait.
WORKERS ?= 4
# A process without tests takes some of another one's.
PARALLEL = -n $(WORKERS) --dist worksteal
# Seeds for each test that takes `seed` in `make test-long`, and the first of them.
SEEDS      ?= 200
FIRST_SEED ?= 0
# The first run of `make simulate`, and how many.
SEED ?= 0
RUNS ?= 1
ARGS    ?=

# What is compiled is kept: the tests start hundreds of processes, and each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
UV  := .venv-lock/bin/uv

.PHONY: help demo bench test retest quick test-long simulate check format missing requirements-doc wheel lock clean FORCE

help:
	@echo 'make demo       see a request go through the whole pipeline, with faults on the way  (ARGS=--stay)'
	@echo 'make test       everything that has to be green: lint, types, all tests'
	@echo 'make retest     the tests that failed last time, one after the other'
	@echo 'make quick      the same without what needs a server or a process, about a minute'
	@echo 'make test-long  the tests that take seeds, with many of them              (SEEDS=$(SEEDS) FIRST_SEED=$(FIRST_SEED))'
	@echo 'make simulate   replay one simulated run, or make many                    (SEED=$(SEED) RUNS=$(RUNS))'
	@echo 'make bench      measure                                                   (ARGS="--url postgresql --peer bullmq")'
	@echo 'make format     put the sources into the one format'
	@echo 'make requirements-doc   write tests/trace/requirements.md from the tests'
	@echo 'make lock       resolve the pinned requirements anew                      (ARGS=--upgrade)'

demo: $(VENV)/.run
	@$(BIN)/gesta demo $(ARGS)

# A peer needs Node and Valkey, which only the tests' requirements have.
bench: $(VENV)/$(if $(findstring --peer,$(ARGS)),.dev,.run)
	@$(BIN)/python -m benchmarks $(ARGS)

test: check
	$(BIN)/python -m pytest $(PARALLEL) -m "not long" $(ARGS)
	@$(BIN)/python -m tests.trace.report --missing

# One after the other: what fails only beside other tests passes here, and .ci/run names it.
retest: $(VENV)/.dev
	$(BIN)/python -m pytest -n 0 -m "not long" --last-failed --last-failed-no-failures none $(ARGS)
	@$(BIN)/python -m tests.trace.report --missing

# These do not wait: one process for each of two cores.
quick: WORKERS = 2
quick: check
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not long" --hypothesis-profile=quick $(ARGS)

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) --test-seconds=3600 -m "seeds or long or hypothesis" --hypothesis-profile=long --seeds=$(SEEDS) --first-seed=$(FIRST_SEED) $(ARGS)

simulate: $(VENV)/.dev
	@$(BIN)/python -m tests.simulation --seed $(SEED) --runs $(RUNS)

check: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

missing: $(VENV)/.dev
	@$(BIN)/python -m tests.trace.report --missing

requirements-doc: $(VENV)/.dev
	$(BIN)/python -m tests.trace.report --write

wheel: $(VENV)/.dev
	$(BIN)/python -m build --no-isolation --wheel

# An interpreter named on the command line that is not the one of .venv makes .venv anew; else any .venv will do.
ifneq ($(origin PYTHON),file)
ifneq ($(shell cat $(VENV)/.made-by 2>/dev/null),$(PYTHON))
REMAKE := FORCE
endif
endif

$(VENV)/.made-by: $(REMAKE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'gesta needs Python 3.11 or newer. Name one: make $(MAKECMDGOALS) PYTHON=python3.12'; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@echo '$(PYTHON)' > $@

# run.txt is part of dev.txt (held by a test), so one .venv serves both, in either order.
$(VENV)/.run: $(VENV)/.made-by requirements/run.txt pyproject.toml
	$(PIP) install --require-hashes -r requirements/run.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.made-by requirements/dev.txt pyproject.toml
	$(PIP) install --require-hashes -r requirements/dev.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.run

# Pins and hashes for Python 3.11 and newer on every platform; no index is written down, so that any registry serves.
LOCK := compile --no-config --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links

lock: $(UV)
	$(UV) pip $(LOCK) pyproject.toml --extra postgresql --extra redis --extra slack --extra email --extra ses --extra sms --extra kurrentdb --extra sqs --extra stripe --extra testing --group dev --output-file requirements/dev.txt --quiet $(ARGS)
	$(UV) pip $(LOCK) pyproject.toml --extra postgresql --extra redis --extra slack --extra email --extra ses --extra sms --extra sqs --extra stripe --group build --group servers --constraints requirements/dev.txt --output-file requirements/run.txt --quiet $(ARGS)

$(UV):
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip --disable-pip-version-check --quiet install 'uv>=0.13,<0.14'

clean:
	rm -rf $(VENV) .venv-lock dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
