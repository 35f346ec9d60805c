# Everything here only calls things that also work alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo matrix test lint bench clean

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

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m bench

clean:
	-$(BIN)/fencepost clean
	rm -rf $(VENV)
