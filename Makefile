# Every command sets up what it needs. Everything goes into this folder (.venv, .tools) and into the cache
# folder. Only `make cluster` and `make test-cluster`, which run a Kubernetes on this machine, need root.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
export FLOTILLA_CACHE ?= $(HOME)/.cache/flotilla
export UV_CACHE_DIR := $(FLOTILLA_CACHE)/uv
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS ?= true
export PIP_CACHE_DIR := $(FLOTILLA_CACHE)/pip

UV_VERSION := 0.13.7
UV := .tools/uv-$(UV_VERSION)/bin/uv
BIN := .venv/bin
MEMBERS := client server broker manager operator spark-apps
SERVERS := flotilla-workspace flotilla-broker flotilla-manager flotilla-operator
PROJECTS := pyproject.toml $(MEMBERS:%=%/pyproject.toml)

# The version of Flotilla has one definition; tools/set_version.py sets it, and its copies in the chart and the docs.
DEFINITION := client/src/flotilla/__init__.py
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' $(DEFINITION))
DOCKER ?= docker

.PHONY: help setup spark run test test-slow test-all test-cluster sim coverage lint fmt hooks lock bench images cluster kind clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: .venv/.ready ## install everything into this folder and the cache folder

$(UV):
	@echo "setup: installing uv $(UV_VERSION)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Flotilla needs Python 3.11 or newer; '$(PYTHON)' is older. Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m pip --version > /dev/null 2>&1 || { echo "The set-up needs pip for '$(PYTHON)'. On Debian, as root: apt-get install python3-pip" >&2; exit 1; }
	@rm -rf $(@D)/.. && $(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target $(@D)/.. uv==$(UV_VERSION)

.venv/.ready: $(UV) requirements.lock $(PROJECTS) $(DEFINITION)
	@echo "setup: installing the locked dependencies"
	@$(UV) venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" .venv
	@$(UV) pip sync --quiet --python .venv --require-hashes requirements.lock
	@$(UV) pip install --quiet --python .venv --no-deps --no-build-isolation $(MEMBERS:%=--editable %)
	@touch $@

# Spark is large, and only its tests and applications need it: `make run` does without.
spark: .venv/.ready-spark ## install Spark as well, for the data source and the applications in spark-apps; it needs Java 17 or newer

.venv/.ready-spark: .venv/.ready requirements-spark.lock
	@echo "setup: installing Spark"
	@$(UV) pip install --quiet --python .venv --require-hashes --requirement requirements-spark.lock
	@touch $@

run: setup ## set up everything and start a cluster on this machine; UP="--port 9000" for options
	@$(BIN)/flotilla up $(UP)

test: spark ## run the quick tests: lint, unit, sim, smoke (a few minutes, without root)
	@$(BIN)/python tools/run_tests.py quick

test-slow: spark ## run the tests that `make test` leaves out: system, browser, spark, cluster
	@$(BIN)/python tools/run_tests.py slow

test-all: spark ## run all tests; the cluster stage only with CLUSTER=1, as root
	@$(BIN)/python tools/run_tests.py all

test-cluster: spark ## run the tests on a real Kubernetes: on this machine (needs root), or in KUBECONFIG with FLOTILLA_IMAGES
	@CLUSTER=1 $(BIN)/python tools/run_tests.py cluster

SEEDS ?= 1000
sim: setup ## run the simulation with SEEDS=n seeds, from SIM_SEED=n on, on all cores
	@$(BIN)/python tests/sim/many.py --first $${SIM_SEED:-0} --seeds $(SEEDS)

TESTS ?=
coverage: spark ## print the test coverage of each package (takes minutes); TESTS="tests/unit/log" for other tests
	@$(BIN)/python tools/coverage_report.py $(TESTS)

lint: spark ## ruff, mypy, import-linter, wording
	@$(BIN)/python tools/run_tests.py lint

fmt: spark ## format the code
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

hooks: spark ## install git hooks that run ruff, mypy and the wording check on the files of each commit
	@$(BIN)/pre-commit install

lock: $(UV) ## resolve the dependencies again, and write requirements*.lock
	@$(UV) lock --quiet --upgrade
	@$(UV) export --quiet --all-packages --no-emit-workspace --no-header --output-file requirements.lock
	@$(UV) export --quiet $(SERVERS:%=--package %) --no-dev --group build --no-emit-workspace --no-header --output-file requirements-server.lock
	@$(UV) export --quiet --package flotilla-workspace --package flotilla-spark --extra spark --no-dev --group build --no-emit-workspace --no-header --output-file requirements-spark.lock

bench: setup ## measure records, the log, brokers, the API, quotas and the client on this machine (a few minutes)
	@$(BIN)/python benchmarks/records.py
	@$(BIN)/python benchmarks/log.py
	@$(BIN)/python benchmarks/broker.py
	@$(BIN)/python benchmarks/api.py
	@$(BIN)/python benchmarks/quotas.py
	@$(BIN)/python benchmarks/client.py

images: ## build the images of servers and of Spark, flotilla:VERSION and flotilla-spark:VERSION; DOCKER=podman for another builder
	@$(DOCKER) build --tag flotilla:$(VERSION) .
	@$(DOCKER) build --file spark-apps/Dockerfile --tag flotilla-spark:$(VERSION) .

cluster: setup ## run a Kubernetes on this machine for development (needs root), and print its kubeconfig
	@PYTHONPATH=tests $(BIN)/python -m cluster.harness

kind: images ## create a kind cluster with Flotilla at http://127.0.0.1:8080
	@tools/kind.sh flotilla:$(VERSION) flotilla-spark:$(VERSION)

clean: ## remove what setup installed into this folder
	@rm -rf .venv .tools
