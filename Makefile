# Everything here only calls things that also work alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo adapters matrix zoo test test-docker test-local lint bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

demo: setup
	$(BIN)/fencepost images
	$(BIN)/fencepost demo

matrix: setup
	$(BIN)/fencepost images
	$(BIN)/fencepost matrix

# The adapters of libraries in Go and Java: needs Go, and a JDK and Maven.
adapters: setup
	$(BIN)/python -m harness.client.compiled

# Every test once. Those on nodes of any runtime run on `local`, where it can be had; else on Docker, as is said.
test: setup
	$(BIN)/fencepost images
	$(BIN)/pytest -n 4 --dist loadgroup --listed-skips

# What runs on nodes of any runtime, on Docker.
test-docker: export FENCEPOST_RUNTIME = docker
test-docker: setup
	$(BIN)/fencepost images
	$(BIN)/pytest -n 3 --dist loadgroup --listed-skips -m "nodes and not docker"

# All that runs on nodes, without an engine, whether one is there or not.
test-local: export DOCKER_HOST = unix:///nonexistent
test-local: export FENCEPOST_RUNTIME = local
test-local: setup
	$(BIN)/fencepost images
	$(BIN)/pytest -n 3 --dist loadgroup --listed-skips -m "(nodes or local) and not docker"

# The positive controls: every lock that is wrong on purpose, REPEATS times, and what must be said of it.
REPEATS ?= 5
zoo: setup
	$(BIN)/fencepost images contender postgres
	$(BIN)/fencepost matrix zoo --repeat $(REPEATS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m bench

clean:
	-$(BIN)/fencepost clean
	rm -rf $(VENV)
