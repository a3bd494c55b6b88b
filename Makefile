# The two commands of the README are `make demo` and `make test`; both set up a virtual environment first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.trimtab-ready
DOCS   := .venv-docs

.PHONY: setup demo test lint quick bench docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints-dev.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable '.[dev]'
	@touch $@

demo: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m trimtab.training.demo

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --durations=10 --durations-min=5

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

quick: setup
	$(BIN)/python .ci/quick.py

bench: setup
	$(BIN)/python benchmarks/measure.py --json
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/overhead.py --json

# The site of docs/ in site/, in an environment of its own: it reads the code and does not import it.
docs: $(DOCS)/.ready
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet
	@echo "wrote site/index.html"

$(DOCS)/.ready: pyproject.toml constraints-dev.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --upgrade pip
	$(DOCS)/bin/python -m pip install --quiet --constraint constraints-dev.txt --group docs
	@touch $@

clean:
	rm -rf $(VENV) $(DOCS) site build dist .pytest_cache .mypy_cache .ruff_cache
