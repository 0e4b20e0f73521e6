# Every target sets up what it needs. `make demo` shows Headway at work, `make test` is what CI runs.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# One more than CI has cores: many tests wait for processes, timeouts and browsers.
WORKERS ?= 3
QUICK := not browser and not root and not ray and not slurm and not torch and not slow
# Tests and benchmarks keep compiled code here, apart from the user's own.
export HEADWAY_CACHE_DIR ?= $(CURDIR)/.cache/headway

.DEFAULT_GOAL := help
.PHONY: help demo check test lint types layers tools unit docs reference pictures reproduction overlap bench fuzz clean

help: ## Show this list.
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(CORE): pyproject.toml constraints.txt
	@echo "Installing Headway into $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(READY): $(CORE)
	@echo "Installing what tests and documentation need (PyTorch, Ray, …) …"
	@$(PIP) -e '.[dev]'
	@touch $@

demo: $(CORE) ## Reproduce the paper's evaluation on three seeds and write a report.
	$(BIN)/headway reproduce --quick --output reproduction

check: $(READY) lint types layers ## Lint, type-check and run the quick tests: for every edit.
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n 2 -q -m "$(QUICK)"

test: lint types layers unit docs ## Lint, type-check, run all tests, build the documentation.

lint: $(READY) ## Check style and formatting.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check types.
	$(BIN)/mypy

layers: $(READY) ## Check which module may import which.
	$(BIN)/lint-imports --no-logo

tools: ## Install what tests need of the system, unless it is there (as root, with apt-get).
	@command -v ip && command -v tc && command -v ss && command -v openssl && command -v chromium \
	    && command -v slurmctld && command -v slurmd && command -v munged \
	    || { apt-get update -qq && apt-get install -y -qq iproute2 openssl chromium slurm-wlm munge; }

unit: $(READY) tools ## Run the tests; as root, since they make network namespaces.
	@$(BIN)/python -m pytest -n $(WORKERS) --durations=20 || { test $$? -eq 1 \
	    && echo "Running what failed again, one test at a time. A failure now is final." \
	    && $(BIN)/python -m pytest --last-failed --last-failed-no-failures=none; }

docs: $(READY) ## Build the documentation strictly into site/.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

reference: $(READY) ## Write the pages of the command line anew from the commands themselves.
	$(BIN)/typer headway.cli.main utils docs --name headway --title "Command line" \
	    --output docs/reference/cli.md
	$(BIN)/python scripts/calibrate_reference.py > docs/reference/calibrate.md

pictures: $(READY) ## Draw the pictures of the tutorials anew, from the runs that they show.
	$(BIN)/python scripts/pictures.py

reproduction: $(READY) ## Reproduce the paper's evaluation in full; renew the documentation's copy.
	$(BIN)/headway reproduce --output reproduction
	cp reproduction/tables/*.md reproduction/figures/*.svg docs/reproduction/
	rm docs/reproduction/versions.md

overlap: $(READY) ## Measure what overlap is worth; renew the documentation's copy.
	$(BIN)/headway reproduce overlap --output overlap
	cp overlap/tables/*.md overlap/figures/*.svg docs/explanation/overlap/
	rm docs/explanation/overlap/versions.md

bench: $(READY) ## Measure speed, start-up, memory and growth on this machine.
	$(BIN)/python benchmarks/run.py

fuzz: $(READY) ## Compare engine and oracle on many more random workloads than the tests do.
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n 2 tests/engine/test_against_oracle.py \
	    tests/engine/test_fabrics.py

clean: ## Remove everything that these targets made.
	rm -rf $(VENV) .cache site reproduction overlap .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
