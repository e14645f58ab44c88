# Every target runs from .venv in this checkout. `setup` creates it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# One and a half workers per core, because tests spend much of their time waiting for servers.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) \* 3 / 2)

# Tests with real Kafka clients, and all tests of the HTTP door. Tests that read a broker's files are marked `alone`.
THROUGH := $(wildcard tests/doors/kafka/test_*clients.py) tests/doors/kafka/test_kcat.py tests/doors/kafka/test_kill.py tests/doors/http tests/doors/pulsar/test_client.py tests/doors/pulsar/test_transactions.py

.PHONY: help setup console run test test-cluster test-outside check format bench chaos clean docs reference bench-peers package

help:            ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

setup: $(STAMP)  ## create .venv with all dependencies

# Only the dependencies of the server and the lake, so that `make run` starts sooner.
$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mainstem needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): downloads about 700 MB, mostly Spark; takes a minute or two"
	@$(PIP) -e '.[lake,sql,cluster,otel]'
	@touch $@

$(STAMP): $(RUNS)
	@echo "installing the tools for tests and documentation into $(VENV)"
	@$(PIP) -e '.[dev,docs]'
	@touch $@

run: $(RUNS)     ## start the server and the lake, with data in ./data
	@$(BIN)/mainstem serve --data-dir data --lake

check: setup     ## run ruff, mypy --strict and the import contracts
	$(BIN)/ruff check src tests tools
	$(BIN)/ruff format --check src tests tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_names.py

test: check      ## run the checks, then every test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-cluster: setup ## run the tests of the doors against three brokers, with the log in S3, then in etcd, and against two workers
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --through cluster-bucket $(THROUGH)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --through cluster-etcd $(THROUGH)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --through workers $(THROUGH)

# Each suite is fetched in a pinned version into build/outside, and skipped with a reason where its tools are missing.
test-outside: setup ## run other projects' suites against this server (Go, Rust, Java and Python clients)
	$(BIN)/python -m tools.outside

format: setup    ## format the sources
	$(BIN)/ruff check --fix src tests tools
	$(BIN)/ruff format src tests tools

# Not `npm ci`: it needs the bundler of every platform in the lock file, which has only one.
console:         ## build the web console into the package (needs Node and npm)
	cd console && npm install && npm run build

reference: setup ## generate the reference pages and the console's types from the code
	$(BIN)/python -m tools.reference docs
	$(BIN)/python -m tools.console_types

docs: reference  ## build the documentation as a site in build/site
	$(BIN)/mkdocs build --strict

package: setup   ## build both packages in dist and check them
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m build --no-isolation --wheel --outdir dist packaging/client
	$(BIN)/python -m twine check --strict dist/*

bench: setup     ## run the benchmarks, with a raw baseline in the same run
	$(BIN)/python -m tools.bench

bench-peers: setup ## compare other systems under the same load, and write docs/benchmarks.md
	$(PIP) -e '.[peers]'
	$(BIN)/python -m tools.bench.peers
	$(BIN)/python -m tools.bench.peers.pulsar_pair

chaos: setup     ## run the long seeded crash tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow --chaos

clean:           ## remove .venv and caches, but not data
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache build dist src/*.egg-info
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
