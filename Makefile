# `make up` starts Shoal, `make test` checks it. Both need Python >= 3.11 and make, and build .venv from a lock.

VENV := .venv
PY := $(VENV)/bin/python
PYTHONS := $(if $(PYTHON),'$(PYTHON)',python3 python3.13 python3.12 python3.11)
INSTALL := $(PY) -m pip install --quiet --quiet --disable-pip-version-check --no-input --retries 5 \
	--require-hashes --only-binary=:all:
# The same with a line at each stage: $(call install,<lock>).
install = $(PY) -I -S .ci/install.py $(1) $(INSTALL)
UV ?= uv
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-header --no-annotate --only-binary :all: pyproject.toml

.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: up test changed test-all test-cluster prove channels tools peers foreign redteam lint house docs pictures runbook-links lock pin-images release-check clean

up: $(VENV)/.stamp-base $(VENV)/bin/shoal
	@echo "Starting Shoal."
	@exec $(PY) -m console up

# All tests that need nothing but Python: no process, no browser, no server of others. Compiled tests are kept.
test: lint
	@exec env PYTHONDONTWRITEBYTECODE= $(PY) -m tests.suite -m "not process and not slow" -n auto --dist worksteal

# All others, on two workers a core; files that share a fleet as one. What a machine lacks is skipped by name (.ci/run installs it).
test-all: $(VENV)/.stamp-dev $(VENV)/bin/shoal
	@exec env PYTHONDONTWRITEBYTECODE= $(PY) -m tests.suite -m "process or slow" -n auto --dist loadgroup --durations 30 --durations-file

# On the way: the tests that what differs from the branch main can reach. The whole check still decides.
changed: lint
	@exec env PYTHONDONTWRITEBYTECODE= $(PY) -m tools.changed

# A bad day on the Kubernetes of KUBECONFIG (kind, or your own; not one that others use): make test-cluster IMAGE=shoal:0.2.0
# The cluster must be able to get the image. 5 to 8 minutes; VALKEY names another image than the manifests do,
# and S3 one with rclone and, in /opt/moto, moto's server: then a copy goes there, too.
test-cluster: $(VENV)/.stamp-dev $(VENV)/tools/.stamp
	@$(PY) -m proof.cluster --image $(IMAGE) $(if $(VALKEY),--valkey $(VALKEY))
	@exec $(PY) -m proof.cluster --image $(IMAGE) $(if $(VALKEY),--valkey $(VALKEY)) --chart --sentinels \
	  $(if $(S3),--s3 $(S3))

lint: $(VENV)/.stamp-dev $(VENV)/bin/shoal
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --quiet --check .
	@$(PY) -m mypy --no-error-summary
	@$(VENV)/bin/lint-imports --no-cache >$(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }

# Every state of the protocols, ten minutes of faults, each guard taken out, attacks, every figure: an hour or two.
prove: $(VENV)/.stamp-dev $(VENV)/bin/shoal redteam
	@$(PY) -m proof.model
	@$(PY) -m proof.redteam
	@$(PY) -m proof.chaos --minutes 10
	@$(PY) -m proof.chaos.breaker --minutes 10
	@$(PY) -m proof.chaos.continued --waves 5
	@$(PY) -m proof.mutants
	@exec $(PY) -m proof.bench all

# How readable the code is, in counts, beside the values that we want.
house: | $(PY)
	@$(PY) -m tools.house

# Where alerts and pictures of the dashboards lead: `make runbook-links URL=https://wiki.example.org/shoal/RUNBOOK.md`.
LINKED := deploy/prometheus/rules/alerts.yaml k8s/components/monitoring/prometheus-rule.yaml deploy/grafana/dashboards/*.json
runbook-links:
	@sed -E -i 's@(runbook_url: |"url": ")[^#" ]+#shoal@\1$(or $(URL),$(error say URL=https://...))#shoal@' $(LINKED)

# The documentation as a site with a search, in .venv/site.
docs: $(VENV)/tools/.stamp
	@$(PY) -m tools.site $(VENV)/site
	@echo "Open $(VENV)/site/index.html, or serve it: $(PY) -m http.server -d $(VENV)/site 8001"

# The pictures of README and docs, of a page that is started for it: 25 s, needs a Chromium.
pictures: $(VENV)/.stamp-dev $(VENV)/bin/shoal
	@exec $(PY) -m tests.e2e.pictures

# The libraries of chat channels and of tracing: 60 MB that the page and the console do not need.
channels: $(VENV)/.stamp-channels

# What manifests and the image are checked with, and `make docs` needs, in an environment of its own: 8 s, 500 MB. Tests that need it say so.
tools: $(VENV)/tools/.stamp

# Real mail, Matrix and MLflow servers that tests talk to, in an environment of their own: 20 s, 340 MB.
peers: $(VENV)/peers/.stamp

# Clients of OpenAI's protocol that tests use, and types of other makers' Kubernetes objects: 15 s, 230 MB, needs npm.
foreign: $(VENV)/foreign/.stamp

# AgentDojo, whose attacks `python -m proof.redteam` plays, in an environment of its own: 4 s, 42 MB.
redteam: $(VENV)/redteam/.stamp

# All locks anew, keeping every version that still fits. CONTRIBUTING.md says when.
lock:
	@$(LOCK) --extra dev --extra channels --extra s3 --extra tracing -o requirements-dev.txt
	@$(LOCK) --extra channels --extra s3 --extra tracing -c requirements-dev.txt -o requirements-channels.txt
	@$(LOCK) -c requirements-dev.txt -o requirements.txt
	@$(filter-out pyproject.toml,$(LOCK)) tools/requirements.in -o tools/requirements.txt
	@$(filter-out pyproject.toml,$(LOCK)) tests/peers/requirements.in -o tests/peers/requirements.txt
	@$(filter-out pyproject.toml,$(LOCK)) tests/foreign/requirements.in -o tests/foreign/requirements.txt
	@cd tests/foreign && npm install --silent --package-lock-only --omit-lockfile-registry-resolved
	@$(filter-out pyproject.toml,$(LOCK)) --no-deps proof/redteam/requirements.in -o proof/redteam/requirements.txt

# Before a release: the digest of each image that it names behind its tag (asks registries through docker).
pin-images: | $(PY)
	@$(PY) -I .ci/images.py pin

# A release with an image by tag alone fails here, and one with a package that has no wheel for a platform (asks the index: 25 s).
release-check: | $(PY)
	@$(PY) -I .ci/images.py check
	@$(PY) -I .ci/wheels.py

clean:
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.stamp-base: requirements.txt .ci/check_packages.py | $(PY)
	@echo "Installing Shoal's packages into $(VENV), once; it takes half a minute."
	@$(call install,requirements.txt)
	@$(PY) -I -S .ci/check_packages.py $(VENV) requirements.txt
	@$(MAKE) --no-print-directory $(VENV)/bin/shoal
	@touch $@

$(VENV)/.stamp-channels: requirements-channels.txt requirements.txt .ci/check_packages.py | $(PY)
	@echo "Installing the libraries of channels and of tracing into $(VENV)."
	@$(call install,requirements-channels.txt)
	@$(PY) -I -S .ci/check_packages.py $(VENV) requirements.txt requirements-channels.txt
	@$(MAKE) --no-print-directory $(VENV)/bin/shoal
	@touch $(VENV)/.stamp-base $@

$(VENV)/.stamp-dev: requirements-dev.txt requirements.txt .ci/check_packages.py | $(PY)
	@echo "Installing Shoal's packages and those of its tests into $(VENV), once; it takes a minute."
	@$(call install,requirements-dev.txt)
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

$(VENV)/foreign/.stamp: tests/foreign/requirements.txt tests/foreign/package-lock.json | $(PY)
	@$(PY) -m venv --clear $(VENV)/foreign
	@$(VENV)/foreign/bin/python $(wordlist 2,99,$(INSTALL)) --no-compile -r tests/foreign/requirements.txt
	@cp tests/foreign/package.json tests/foreign/package-lock.json $(VENV)/foreign/
	@cd $(VENV)/foreign && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

$(VENV)/redteam/.stamp: proof/redteam/requirements.txt | $(PY)
	@$(PY) -m venv --clear $(VENV)/redteam
	@$(VENV)/redteam/bin/python $(wordlist 2,99,$(INSTALL)) --no-compile --no-deps -r proof/redteam/requirements.txt
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
	echo "Making a virtual environment in $(VENV) with $$("$$found" --version)."; \
	"$$found" -m venv --clear $(VENV)
