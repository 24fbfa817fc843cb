# `make up` starts Shoal, `make test` checks it. Both need Python >= 3.11 and make, and build .venv from a lock.

VENV := .venv
PY := $(VENV)/bin/python
PYTHONS := $(if $(PYTHON),'$(PYTHON)',python3 python3.13 python3.12 python3.11)
INSTALL := $(PY) -m pip install --quiet --quiet --disable-pip-version-check --no-input --retries 5 \
	--require-hashes --only-binary=:all:
UV ?= uv
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-header --no-annotate --only-binary :all: pyproject.toml

.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: up test test-all prove channels tools peers lint house lock clean

up: $(VENV)/.stamp-base $(VENV)/bin/shoal
	@exec $(PY) -m console up

# All tests that need nothing but Python: no process, no browser, no server of others. Compiled tests are kept.
test: lint
	@exec env PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -m "not process and not slow" -n auto --dist worksteal

# All others: processes in as many groups as cores. What a machine lacks is skipped by name (.ci/run installs it).
test-all: $(VENV)/.stamp-dev $(VENV)/bin/shoal
	@exec env PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -m "process or slow" -n auto --dist loadgroup --durations 30 --durations-file

lint: $(VENV)/.stamp-dev $(VENV)/bin/shoal
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --quiet --check .
	@$(PY) -m mypy --no-error-summary
	@$(VENV)/bin/lint-imports --no-cache >$(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }

# Every state of the protocols, ten minutes of faults, each guard taken out, every figure: an hour or two.
prove: $(VENV)/.stamp-dev $(VENV)/bin/shoal
	@$(PY) -m proof.model
	@$(PY) -m proof.chaos --minutes 10
	@$(PY) -m proof.mutants
	@exec $(PY) -m proof.bench all

# How readable the code is, in counts, beside the values that we want.
house: | $(PY)
	@$(PY) -m tools.house

# The libraries of chat channels and of tracing: 60 MB that the page and the console do not need.
channels: $(VENV)/.stamp-channels

# What manifests and the image are checked with, in an environment of its own: 5 s, 255 MB. Tests that need it say so.
tools: $(VENV)/tools/.stamp

# Real mail and Matrix servers that tests of channels talk to, in an environment of their own.
peers: $(VENV)/peers/.stamp

# All locks anew, keeping every version that still fits. CONTRIBUTING.md says when.
lock:
	@$(LOCK) --extra dev --extra channels --extra tracing -o requirements-dev.txt
	@$(LOCK) --extra channels --extra tracing -c requirements-dev.txt -o requirements-channels.txt
	@$(LOCK) -c requirements-dev.txt -o requirements.txt
	@$(filter-out pyproject.toml,$(LOCK)) tools/requirements.in -o tools/requirements.txt
	@$(filter-out pyproject.toml,$(LOCK)) tests/peers/requirements.in -o tests/peers/requirements.txt

clean:
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.stamp-base: requirements.txt .ci/check_packages.py | $(PY)
	@echo "Installing Shoal's packages into $(VENV); the first time takes a minute."
	@$(INSTALL) -r requirements.txt
	@$(PY) -I -S .ci/check_packages.py $(VENV) requirements.txt
	@$(MAKE) --no-print-directory $(VENV)/bin/shoal
	@touch $@

$(VENV)/.stamp-channels: requirements-channels.txt requirements.txt .ci/check_packages.py | $(PY)
	@$(INSTALL) -r requirements-channels.txt
	@$(PY) -I -S .ci/check_packages.py $(VENV) requirements.txt requirements-channels.txt
	@$(MAKE) --no-print-directory $(VENV)/bin/shoal
	@touch $(VENV)/.stamp-base $@

$(VENV)/.stamp-dev: requirements-dev.txt requirements.txt .ci/check_packages.py | $(PY)
	@echo "Installing Shoal's packages and those of its tests into $(VENV); the first time takes a minute."
	@$(INSTALL) -r requirements-dev.txt
	@$(PY) -I -S .ci/check_packages.py $(VENV) requirements.txt requirements-dev.txt
	@$(MAKE) --no-print-directory $(VENV)/bin/shoal
	@touch $(VENV)/.stamp-base $(VENV)/.stamp-channels $@

$(VENV)/tools/.stamp: tools/requirements.txt | $(PY)
	@$(PY) -m venv --clear $(VENV)/tools
	@$(VENV)/tools/bin/python $(wordlist 2,99,$(INSTALL)) --no-compile -r tools/requirements.txt
	@touch $@

$(VENV)/peers/.stamp: tests/peers/requirements.txt | $(PY)
	@$(PY) -m venv --clear $(VENV)/peers
	@$(VENV)/peers/bin/python $(wordlist 2,99,$(INSTALL)) --no-compile -r tests/peers/requirements.txt
	@touch $@

# The `shoal` command for this checkout, without a build step.
$(VENV)/bin/shoal: Makefile | $(PY)
	@printf '%s\n' '#!/bin/sh' 'root=$$(cd "$$(dirname "$$0")/../.." && pwd)' \
		'PYTHONPATH="$$root" exec "$$root/$(PY)" -P -m console "$$@"' >$@
	@chmod +x $@

$(PY):
	@found=; for python in $(PYTHONS); do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			found=$$python; break; fi; done; \
	if [ -z "$$found" ]; then \
		echo "Shoal needs Python 3.11 or newer; none of these is one: $(subst ','"'"',$(PYTHONS))."; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; fi; \
	if ! "$$found" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
		echo "$$found cannot make virtual environments: its venv module is missing."; \
		echo "On Debian and Ubuntu: apt-get install python3-venv"; exit 1; fi; \
	"$$found" -m venv --clear $(VENV)
