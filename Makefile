# Everything runs from .venv in this checkout; `setup` makes it, every other target asks for it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Half as many again as there are cores: a good part of the tests' time is waiting for servers they started.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) \* 3 / 2)

# Real clients of the Kafka door, and all of the HTTP door. What looks into a broker's own files is marked `alone`.
THROUGH := $(wildcard tests/doors/kafka/test_*clients.py) tests/doors/kafka/test_kcat.py tests/doors/kafka/test_kill.py tests/doors/http

.PHONY: help setup console run test test-cluster check format bench chaos clean docs reference bench-peers

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

setup: $(STAMP)  ## make .venv with everything in it

# What it takes to run a server with its lake, and no more: a newcomer waits for this.
$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mainstem needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV), once: some 700 MB are fetched, most of them Spark; this takes a minute or two"
	@$(PIP) -e '.[spark,cluster,otel]'
	@touch $@

$(STAMP): $(RUNS)
	@echo "installing the tools for tests and documents into $(VENV)"
	@$(PIP) -e '.[dev,docs]'
	@touch $@

run: $(RUNS)     ## start the server and the lake on this machine, data in ./data
	@$(BIN)/mainstem serve --data-dir data --lake

check: setup     ## ruff, mypy --strict, import layers
	$(BIN)/ruff check src tests tools
	$(BIN)/ruff format --check src tests tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_names.py

test: check      ## checks, then every test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-cluster: setup ## the doors' own tests through a cluster of three brokers: its log in S3, then in etcd
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --through cluster-bucket $(THROUGH)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --through cluster-etcd $(THROUGH)

format: setup    ## rewrite the sources in the house format
	$(BIN)/ruff check --fix src tests tools
	$(BIN)/ruff format src tests tools

# Not `npm ci`: it wants the bundler of every platform in the lock file, and that has this one's.
console:         ## build the web console into the package (needs Node and npm; users need neither)
	cd console && npm install && npm run build

reference: setup ## write the pages of the documents that are made from the code
	$(BIN)/python -m tools.reference docs

docs: reference  ## the documents as a site, in build/site
	$(BIN)/mkdocs build --strict

bench: setup     ## measure the bars, with a raw baseline in the same run
	$(BIN)/python -m tools.bench

bench-peers: setup ## other systems under the same load, side by side, into docs/benchmarks.md
	$(PIP) -e '.[peers]'
	$(BIN)/python -m tools.bench.peers

chaos: setup     ## the long seeded crash runs
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow --chaos

clean:           ## remove .venv and caches, never data
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache build dist src/*.egg-info
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
