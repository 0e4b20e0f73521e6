# Every target sets up what it needs. `make demo` shows Headway at work, `make test` is what CI runs.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests and benchmarks keep compiled code here, apart from the user's own.
export HEADWAY_CACHE_DIR ?= $(CURDIR)/.cache/headway

.DEFAULT_GOAL := help
.PHONY: help demo test lint types layers tools unit docs reference reproduction bench fuzz clean

help: ## Show this list.
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY) ## Reproduce the paper's evaluation on three seeds and write a report.
	$(BIN)/headway reproduce --quick --output reproduction

test: lint types layers unit docs ## Lint, type-check, test, build the documentation.

lint: $(READY) ## Check style and formatting.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check types.
	$(BIN)/mypy

layers: $(READY) ## Check which module may import which.
	$(BIN)/lint-imports --no-logo

tools: ## Install what tests need of the system, unless it is there (as root, with apt-get).
	@command -v ip && command -v tc && command -v ss && command -v openssl \
	    || { apt-get update -qq && apt-get install -y -qq iproute2 openssl; }

unit: $(READY) tools ## Run the tests; as root, since they make network namespaces.
	$(BIN)/python -m pytest -n 2

docs: $(READY) ## Build the documentation strictly into site/.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

reference: $(READY) ## Write the pages of the command line anew from the commands themselves.
	$(BIN)/typer headway.cli.main utils docs --name headway --title "Command line" \
	    --output docs/reference/cli.md
	$(BIN)/python scripts/calibrate_reference.py > docs/reference/calibrate.md

reproduction: $(READY) ## Reproduce the paper's evaluation in full; renew the documentation's copy.
	$(BIN)/headway reproduce --output reproduction
	cp reproduction/tables/*.md reproduction/figures/*.svg docs/reproduction/
	rm docs/reproduction/versions.md

bench: $(READY) ## Measure speed, start-up, memory and growth on this machine.
	$(BIN)/python benchmarks/run.py

fuzz: $(READY) ## Compare engine and oracle on many more random workloads than the tests do.
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n 2 tests/engine/test_against_oracle.py

clean: ## Remove everything that these targets made.
	rm -rf $(VENV) .cache site reproduction .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
