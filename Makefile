# Two commands do everything on a fresh machine with Python >= 3.11 and a package index:
#   make check   prove the core, fuzz our own pool, plant a bug and see it caught
#   make test    the whole test suite
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION ?= 0.25.1
SECONDS_LONG ?= 600

.PHONY: check test prove nightly vllm bench clean

check: $(VENV)/.core
	@$(BIN)/python tools/check.py

test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n auto

prove: $(VENV)/.core
	$(BIN)/kvproof prove

nightly: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n auto -m "slow or not slow"
	$(BIN)/kvproof fuzz impl --policy --misuse --seconds $(SECONDS_LONG) --jobs 2

bench: $(VENV)/.core
	$(BIN)/python tests/bench/rate.py

vllm: $(VENV)/.core
	@$(BIN)/python tools/vllm_env.py $(VERSION)

clean:
	rm -rf $(VENV) .venv-vllm-* .kvproof .hypothesis .mypy_cache .ruff_cache .pytest_cache

$(VENV)/.core: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvproof needs Python >= 3.11; name one with make PYTHON=...")'
	@echo "installing kvproof into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing the development tools"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
