# Thingway. `make` alone lists the targets.

PYTHONS := python3.13 python3.12 python3.11
# The first Python that is recent enough and can create environments: a shim on PATH may fail.
# System Pythons come first, because distributions optimize them and version managers often do not.
PYTHON ?= $(shell for name in $(addprefix /usr/bin/,$(PYTHONS)) $(PYTHONS) python3; do \
	if "$$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	command -v "$$name"; break; fi; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
NPM := $(BIN)/python console/npm.py
RUN := .venv/.installed-run
DEV := .venv/.installed-dev
NODE := .venv/.installed-node
DOCS := .venv/.installed-docs
RELEASE := .venv/.installed-release
CONSOLE := console/dist/index.html
ARGS ?=

# Keep bytecode, because tests start many processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help up console screenshots test test-all compiled test-faults test-kubernetes lint lint-python lint-console lint-language resolve docs bench compose image bundle audit clean

help: ## List the targets
	@echo "Thingway: an event-driven IoT platform"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) \
		| while IFS='|' read -r target text; do printf '%-16s %s\n' "$$target" "$$text"; done
	@echo
	@echo 'Options go in ARGS, e.g. make up ARGS="--port 9000 --data /elsewhere"'

up: $(RUN) $(if $(findstring --no-console,$(ARGS)),,console) ## Start the platform on this machine until Ctrl-C (ARGS: see thingway up --help)
	@THINGWAY_END_WITH_PARENT=1 exec $(BIN)/thingway up $(ARGS)

console: $(CONSOLE) ## Build the console, if its sources changed

screenshots: $(DEV) $(CONSOLE) ## Take screenshots of all console pages, light and dark, desktop and phone (ARGS: --out DIRECTORY)
	@$(BIN)/python -m tests.clients.screenshots $(ARGS)

test: $(DEV) $(CONSOLE) ## Run the quick tests, without Docker (ARGS: for pytest)
	@$(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder -m "not docker and not slow" $(ARGS)

compiled: $(DEV) ## Compile the modules that tests import, once for all test processes
	@found=$$($(BIN)/pytest --collect-only -qq) || { echo "$$found"; exit 1; }

test-all: $(DEV) $(CONSOLE) ## Run all tests; requires Docker, and tests the chart if kubectl reaches a cluster (ARGS: for pytest)
	@AXE_RULES=all $(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder $(ARGS)

test-kubernetes: $(DEV) ## Try the chart on the cluster that KUBECONFIG names (docs/how-to/releasing.md)
	@$(BIN)/pytest -m kubernetes tests/kubernetes $(ARGS)

test-faults: $(DEV) ## Inject faults into a cluster on this machine and count lost data (ARGS: e.g. "kill partition")
	@$(BIN)/python -m tests.faults $(ARGS)

lint: lint-python lint-console lint-language ## Check style, types, import rules, spelling and plain English

lint-python: $(DEV)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell

lint-language: $(DEV) # its rules are in tests/language/rules.toml
	@$(BIN)/python -m tests.language

# Runs after the build, because both write the generated client.
lint-console: console/node_modules/.installed $(if $(filter console,$(MAKECMDGOALS)),$(CONSOLE))
	@$(NPM) run --prefix console --silent check

resolve: $(DEV) ## Check that all requirements have wheels for the image on x86-64 and arm64
	@$(BIN)/python .ci/resolve_requirements.py

docs: $(DOCS) ## Build the documentation as a site with search in site/
	@$(BIN)/zensical build --clean --strict

bench: $(DEV) $(if $(ARGS),$(if $(findstring console,$(ARGS)),console),console) ## Run the benchmarks and print a table with targets (ARGS: see python -m bench --help)
	@$(BIN)/python -m bench $(ARGS)

compose: ## Start the platform in containers (ARGS: e.g. --scale device=3)
	@if docker compose version >/dev/null 2>&1; then exec docker compose up --build $(ARGS); \
	elif command -v docker-compose >/dev/null; then exec docker-compose up --build $(ARGS); \
	else echo "neither 'docker compose' nor docker-compose is installed" >&2; exit 2; fi

image: ## Build the image, tagged with its version and as thingway:local (ARGS: for docker build)
	@version=$$(sed -n 's/^VERSION = "\(.*\)"/\1/p' libs/common/version.py); \
	docker build -f deploy/docker/Dockerfile -t "thingway:$$version" -t thingway:local \
	--build-arg THINGWAY_COMMIT=$$(git rev-parse --short HEAD) $(ARGS) .

bundle: $(RELEASE) $(CONSOLE) ## Write images, chart, wheels, SBOM and checksums for machines without a network to dist/
	@.ci/bundle

audit: $(RELEASE) ## Report known vulnerabilities of all installed packages; requires PyPI (ARGS: e.g. --ignore-vuln ID)
	@$(PIP) freeze --exclude-editable >.venv/installed.txt
	@$(BIN)/pip-audit --strict --disable-pip --no-deps -r .venv/installed.txt $(ARGS)

clean: ## Remove the environment and all caches; keeps .data
	@rm -rf .venv dist tests/clients/node_modules console/node_modules console/dist console/src/api/generated site .cache .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@if ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	echo "Thingway requires Python 3.11 or newer with its venv module (Debian: python3-venv). Install it, or set make PYTHON=/path/to/python3" >&2; \
	exit 2; fi
	@echo "creating .venv with $$("$(PYTHON)" --version)"
	@"$(PYTHON)" -m venv .venv || { rm -rf .venv; \
	echo "cannot create .venv: install the venv module of this Python (Debian: python3-venv)" >&2; exit 2; }

$(RUN): requirements.txt requirements-embedded.txt pyproject.toml | $(BIN)/python
	@echo "installing the dependencies of Thingway (takes a minute the first time)"
	@$(PIP) install -r requirements.txt -r requirements-embedded.txt
	@$(PIP) install --no-deps -e .
	@touch $@

# After the other packages when both are wanted: two pips must not write to one environment.
$(DOCS): requirements-docs.txt | $(BIN)/python $(if $(filter lint compiled,$(MAKECMDGOALS)),$(DEV))
	@$(PIP) install -r requirements-docs.txt
	@touch $@

$(RELEASE): requirements-release.txt $(DEV)
	@$(PIP) install -r requirements-release.txt
	@touch $@

$(NODE): requirements-node.txt $(RUN)
	@$(PIP) install -r requirements-node.txt
	@touch $@

console/node_modules/.installed: console/package-lock.json $(NODE)
	@echo "installing the build tools of the console (takes a minute the first time)"
	@$(NPM) ci --prefix console --no-audit --no-fund --silent
	@touch $@

$(CONSOLE): console/node_modules/.installed console/openapi.json console/index.html console/vite.config.ts \
		console/openapi-ts.config.ts $(shell find console/src -type f -not -path '*/generated/*')
	@echo "building the console"
	@$(NPM) run --prefix console --silent build
	@touch $@

# Not compiled, because most of these packages are never imported.
$(DEV): requirements-dev.txt tests/clients/package-lock.json clients/python/openapi.json $(NODE)
	@echo "installing the dependencies of tests and checks"
	@$(PIP) install --no-compile -r requirements.txt -r requirements-embedded.txt -r requirements-dev.txt
	@$(PIP) install --no-deps --no-build-isolation -e clients/python
	@$(NPM) ci --prefix tests/clients --no-audit --no-fund --silent
	@touch $@
