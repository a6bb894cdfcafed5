# Needs Python 3.10 or newer and make. Everything else goes into $(VENV), and warm-server into the cache.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

WARM_VERSION := 0.6.5
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
SERVER_ROOT := $(CACHE)/warm-integrations/warm-server-$(WARM_VERSION)

CHAT := $(BIN)/streamlit run examples/chat/app.py

# The tools that call each other (nbdev runs git, git runs nbdev) find one another on PATH.
export PATH := $(abspath $(BIN)):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup server test demo demo-server replay bench bench-recall bench-chat soak screenshots notebooks docs export readme format check clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Create the virtual environment in .venv

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[openai-agents,demo,dev]"
	@touch $@

server: ## Build warm-server, once per machine
	@if [ -n "$$WARM_SERVER" ]; then \
	  [ -x "$$WARM_SERVER" ] || { echo "WARM_SERVER=$$WARM_SERVER is not a program"; exit 1; }; \
	elif command -v warm-server >/dev/null || [ -x "$(SERVER_ROOT)/bin/warm-server" ]; then :; \
	elif command -v cargo >/dev/null; then \
	  echo "Building warm-server $(WARM_VERSION), once per machine: this takes several minutes"; \
	  cargo install warm-rust --version $(WARM_VERSION) --features server --bin warm-server --locked \
	    --root "$(SERVER_ROOT)" || \
	    { echo "No warm-server: the build failed. It needs Rust 1.89 or newer (https://rustup.rs)"; [ -z "$$CI" ]; }; \
	else \
	  echo "No warm-server: install Rust from https://rustup.rs, then run 'make server'"; [ -z "$$CI" ]; \
	fi

test: setup server ## Run all tests
	$(BIN)/pytest -n 2 $(ARGS)

demo: setup ## Open the chat, with its data in an embedded store
	$(CHAT)

demo-server: setup server ## Open the chat on a local warm-server, with its data in ./warm-data
	$(BIN)/python examples/local_server.py --data-dir warm-data -- $(CHAT)

replay: setup ## Time a long conversation: make replay DATA=file.json [WARM_URL=http://...]
	@[ -n "$(DATA)" ] || { echo "Which conversation? make replay DATA=file.json"; exit 1; }
	$(BIN)/python benchmarks/replay.py "$(DATA)" $(ARGS)

bench: setup server ## Measure beside the SDK's own sessions, on a quiet machine with redis-server
	@command -v redis-server >/dev/null || { echo "No redis-server: apt-get install redis-server"; exit 1; }
	$(BIN)/python benchmarks/everything.py $(ARGS)

bench-chat: setup ## Measure the chat on a conversation of 2,000 items, in Chromium
	$(BIN)/python benchmarks/chat.py $(ARGS)

bench-recall: setup ## Measure what questions find: make bench-recall DATA=file.json
	@[ -n "$(DATA)" ] || { echo "Which questions? make bench-recall DATA=file.json"; exit 1; }
	$(BIN)/python benchmarks/recall.py "$(DATA)" $(ARGS)

soak: setup server ## Work on both stores for 10 minutes, warm-server killed now and then: make soak ARGS="--minutes 1"
	$(BIN)/python benchmarks/soak.py $(ARGS)

screenshots: setup ## Take the pictures of the chat in docs/screenshots, in Chromium
	$(BIN)/python docs/screenshots.py

notebooks: setup ## Open the notebooks in JupyterLab
	$(BIN)/jupyter lab nbs

docs: setup ## Build the documentation site into build/docs
	$(BIN)/python docs/nb2md.py --site build/site
	$(BIN)/sphinx-build -W --keep-going -q -c docs -d build/doctrees build/site build/docs
	@echo "Open $(abspath build/docs)/index.html"

export: setup readme ## Write the modules and the README from the notebooks
	$(BIN)/nbdev-export

readme: setup ## Write README.md from nbs/index.ipynb
	$(BIN)/python docs/nb2md.py

format: setup ## Format and clean the notebooks and the hand-written code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/nbdev-clean

check: setup ## Check that all that is made from notebooks is current, then ruff and mypy
	bash .ci/check

clean: ## Remove what the tools have left here, but no data and no environment
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
