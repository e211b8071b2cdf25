# mrcemu: `make setup` once, then `make run`. Every target that needs the set-up calls it; a repeated one takes no time.
# Needs Debian 12/13 or Ubuntu 24.04, make, and root (directly, or through sudo where a step needs it).

PYTHON ?= python3
FUZZ_EXAMPLES ?= 5000
SCENARIO ?= scenarios/first-light.yaml

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
PACKAGES_STAMP := $(VENV)/.packages-done
# Empty for root; mrcemu itself never elevates, so the targets that build namespaces do.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Tests and benchmarks as root must leave no root-owned files behind in a user's checkout.
AS_ROOT := $(SUDO) env PYTHONDONTWRITEBYTECODE=1
# command:package, for what the fabric, captures and the set-up itself run
TOOLS := mnexec:mininet ip:iproute2 tc:iproute2 tcpdump:tcpdump unshare:util-linux

.DEFAULT_GOAL := help
.PHONY: help setup run test check bench fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## install missing system packages and make .venv/bin/mrcemu

run: $(STAMP) ## run the first scenario (SCENARIO=... for another) and print its verdict
	$(SUDO) $(BIN)/mrcemu run $(SCENARIO)

test: $(STAMP) ## run all tests, those on real namespaces too
	$(AS_ROOT) $(BIN)/pytest -q -p no:cacheprovider

check: $(STAMP) ## lint, formatting, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## run the benchmarks, each against a reference measured in the same run
	$(AS_ROOT) $(BIN)/mrcemu bench

fuzz: $(STAMP) ## run the property tests with FUZZ_EXAMPLES (5000) inputs each
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/pytest -q -m hypothesis --hypothesis-profile=fuzz tests/unit tests/sim

clean: ## remove the virtual environment and every cache; results stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find mrcemu tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# The marker `hypothesis` is set by the plugin on every property test.

$(STAMP): pyproject.toml $(PACKAGES_STAMP)
	@echo "installing Python packages into $(VENV) (log: $(VENV)/setup.log)"
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]' >$(VENV)/setup.log 2>&1 || { \
	  tail -n 20 $(VENV)/setup.log >&2; exit 1; }
	@touch $@
	@echo "ready: $(BIN)/mrcemu (commands that build a fabric need root: sudo $(BIN)/mrcemu ...)"

$(PACKAGES_STAMP): Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=$$($(PYTHON) --version 2>/dev/null || echo not there); \
	  echo "mrcemu needs Python 3.11 or newer; $(PYTHON) is $$found: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@missing=""; \
	for tool in $(TOOLS); do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v "$${tool%%:*}" >/dev/null || missing="$$missing $${tool##*:}"; \
	done; \
	$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	if [ -n "$$missing" ]; then \
	  command -v apt-get >/dev/null || { echo "missing:$$missing; install them with your package manager, then make again" >&2; exit 1; }; \
	  [ -z "$(SUDO)" ] || command -v sudo >/dev/null || { echo "missing:$$missing; run as root: make $(MAKECMDGOALS)" >&2; exit 1; }; \
	  echo "installing:$$missing"; \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive sh -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing" >/dev/null; \
	fi
	@$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@touch $@
