# Everything happens in .venv, which the first target sets up. Later ones find the stamp.
# Other people's libraries have a .venv-ecosystem to themselves.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
ECOSYSTEM := .venv-ecosystem

.PHONY: help demo test test-ecosystem bench docs clean

help:
	@echo "make demo             run whygrad on examples/river and show its report"
	@echo "make test             linters, type checks and all tests"
	@echo "make test-ecosystem   healthy programs around transformers, accelerate and lightning"
	@echo "make bench            measure what watching costs on this machine"
	@echo "make docs             regenerate the generated parts of the documentation"
	@echo "make clean            remove .venv, .venv-ecosystem and all caches"

# torch comes first, by its exact version: a range would fetch the newest one with all of CUDA.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "whygrad needs Python 3.11 or newer; choose one with: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --disable-pip-version-check -e ".[dev]"
	touch $@

# The program fails, as it should: 1 is its own exit code, and any other one is a mistake.
demo: $(READY)
	cd examples/river && ../../$(BIN)/whygrad run train.py; test $$? -eq 1

test: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict
	$(BIN)/pytest -n 2

# torch is pinned here too, for the same reason; scipy and pillow are what DETR wants.
$(ECOSYSTEM)/ready: pyproject.toml
	$(PYTHON) -m venv $(ECOSYSTEM)
	$(ECOSYSTEM)/bin/pip install --disable-pip-version-check torch==2.13.0 -e . pytest \
	  transformers accelerate lightning scipy pillow
	touch $@

test-ecosystem: $(ECOSYSTEM)/ready
	$(ECOSYSTEM)/bin/pytest ecosystem

bench: $(READY)
	$(BIN)/python bench/overhead.py

docs: $(READY)
	$(BIN)/python docs/generate.py

clean:
	rm -rf .venv $(ECOSYSTEM) .pytest_cache .mypy_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
