# Everything here only calls things that also work alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo matrix test test-local lint bench clean

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

test: setup
	$(BIN)/fencepost images
	$(BIN)/pytest -n 3 --dist loadgroup

# All that runs on nodes, without an engine, whether one is there or not.
test-local: export DOCKER_HOST = unix:///nonexistent
test-local: export FENCEPOST_RUNTIME = local
test-local: setup
	$(BIN)/fencepost images
	$(BIN)/pytest -n 2 --dist loadfile --listed-skips -m "(nodes or local) and not docker"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m bench

clean:
	-$(BIN)/fencepost clean
	rm -rf $(VENV)
