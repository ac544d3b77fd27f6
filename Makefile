# The handful of commands. `make up` and `make test` need nothing prepared but Python 3.11+.
.DEFAULT_GOAL := help
BOOT := python3 boxwright/bootstrap.py

.PHONY: help up demo doctor test unit lint format bench lock clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

up: ## Make everything ready and run Boxwright in the foreground
	@$(BOOT) boxwright up

demo: ## Run one sandbox through the public Python SDK, step by step
	@$(BOOT) boxwright demo

doctor: ## Check engine, kernel, disk, ports and clock
	@$(BOOT) boxwright doctor

test: ## Set up what tests need and run all of them
	@$(BOOT) --dev python -m tests.prepare
	@.venv/bin/python -m pytest

unit: ## The quick tests only: no engine, no network
	@$(BOOT) --dev python -m pytest tests/unit tests/house tests/wire

lint: ## Formatting, lint, types and the floor plan
	@$(BOOT) --dev ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

format: ## Rewrite files in the house format
	@$(BOOT) --dev ruff format .
	@.venv/bin/ruff check --fix .

bench: ## Measure speed and memory beside the engine's own floor
	@$(BOOT) --dev python -m tests.prepare
	@.venv/bin/python -m tests.bench

lock: ## Pin what pyproject.toml asks for, with hashes and without addresses
	@$(BOOT) --dev uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --group build --output-file requirements.lock pyproject.toml
	@.venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --group build --all-extras --output-file requirements-dev.lock pyproject.toml

clean: ## Remove the environment and caches (sandboxes and state stay)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
