# Everything starts from a fresh clone: git, make, Python >= 3.11 with venv and pip, and PyPI are enough.
#
#   make PYTHON=python3.11 VENV=.venv311 test     another interpreter, in an environment of its own

PYTHON ?=
VENV ?= .venv
CONFIG ?= gateway.yaml
TESTS ?= tests
# What becomes of a user's code, and of memory, does not hang on the store.
POSTGRES_FAULTS := $(filter-out tests/faults/test_python_% tests/faults/test_garbage.py,$(wildcard tests/faults/test_*.py))
POSTGRES_TESTS := tests/storage/postgres tests/scenarios tests/faults/postgres $(POSTGRES_FAULTS) tests/interaction \
  tests/test_invariants.py $(addprefix tests/gateway/,app engine maintenance operations push scheduling)
ROUNDS ?= 2
MINUTES ?= 30
RATE ?= 50
LEDGER ?= postgres
PYTHONS ?= all

UV_VERSION := 0.13.8
PRIVATE_UV := .uv/bin/uv
PRIVATE_UV_STAMP := .uv/uv-$(UV_VERSION)
# A uv that is only a version manager's shim is on the PATH and fails when it is run.
ifndef UV
UV := $(shell uv --version >/dev/null 2>&1 && command -v uv || echo $(PRIVATE_UV))
endif

export UV_PROJECT_ENVIRONMENT := $(VENV)
export UV_PYTHON_DOWNLOADS := never
unexport VIRTUAL_ENV
# Tests start many processes, each of which would compile the whole gateway.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
# One stamp for each PYTHON asked for. uv empties an environment of another version, and the stamps go with it.
STAMP := $(VENV)/.setup-$(subst /,-,$(PYTHON))
BENCH_SETUP = BENCH_UV="$(if $(findstring /,$(UV)),$(abspath $(UV)),$(UV))" BENCH_PYTHON=$(abspath $(BIN))/python bench/setup.sh
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup

# Prints the interpreter to use: PYTHON if given, else the first that really runs and is new enough.
FIND_PYTHON = for candidate in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
	  "$$candidate" -c 'import sys; print(sys.executable) if sys.version_info >= (3, 11) else sys.exit(1)' 2>/dev/null && exit 0; \
	done; \
	echo "no Python >= 3.11 among: $(or $(PYTHON),python3.13 python3.12 python3.11 python3); choose one with PYTHON=..." >&2; exit 1

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test test-postgres check lint coverage fmt packages pages pictures site dist fixture kits contract conformance bench bench-postgres bench-instructions soak

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-25s %s\n", $$1, $$2 }'

setup: $(STAMP) ## leave an environment in .venv: the package, all extras, the tools
	@echo "$(VENV) is ready: $$($(BIN)/python -V)"

# An environment that is there keeps its Python unless PYTHON says otherwise.
$(STAMP): pyproject.toml uv.lock | $(if $(filter $(PRIVATE_UV),$(UV)),$(PRIVATE_UV_STAMP))
	@if [ -z "$(PYTHON)" ] && $(BIN)/python -c '' 2>/dev/null; then python=$(BIN)/python; \
	else python=$$($(FIND_PYTHON)) || exit 1; fi; \
	echo "uv sync --locked --all-extras --python $$python"; \
	$(UV) sync --quiet --locked --all-extras --compile-bytecode --python "$$python"
	@touch $@

$(PRIVATE_UV_STAMP):
	@python=$$($(FIND_PYTHON)) || exit 1; \
	echo "installing uv $(UV_VERSION) into .uv"; \
	"$$python" -m venv --clear .uv && .uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

demo: $(STAMP) ## run the gateway in front of scripted backends: no key, no services
	@exec $(BIN)/a2a-gateway demo

serve: $(STAMP) ## run the gateway on CONFIG (gateway.yaml)
	@exec $(BIN)/a2a-gateway serve -c $(CONFIG)

test: $(STAMP) ## run the whole test suite, or TESTS=path
	$(PYTEST) $(TESTS)

test-postgres: $(STAMP) ## run what holds of every store on PostgreSQL, or TESTS=path: on a server of its own; LEDGER=pgbouncer through a pooler
	A2A_GATEWAY_REQUIRE_POSTGRES=1 $(PYTEST) --ledger=$(LEDGER) $(if $(filter tests,$(TESTS)),$(POSTGRES_TESTS),$(TESTS))

check: lint coverage ## everything that must pass before a commit

lint: $(STAMP) ## formatting, lint, types, import rules, Dockerfile
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/hadolint Dockerfile

coverage: $(STAMP) ## run the whole test suite, or TESTS=path, and hold the coverage gate
	$(PYTEST) $(TESTS) --cov

fmt: $(STAMP) ## format, and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

packages: $(STAMP) ## print the size of every package, who imports it, and the long functions
	@$(BIN)/python -m tests.packages

pages: $(STAMP) ## write docs/cli.md and docs/configuration.md, which are made from the code
	$(BIN)/python -m tests.pages

pictures: $(STAMP) ## take the pictures of docs/pictures anew (needs Chromium)
	A2A_GATEWAY_PICTURES=$(CURDIR)/docs/pictures A2A_GATEWAY_REQUIRE_PEERS=1 $(PYTEST) -n 0 tests/interop/browser/test_pictures.py

site: .venv-site/.setup ## build the site of docs/ into build/site, every link of it checked
	rm -rf build/site
	.venv-site/bin/sphinx-build --quiet --fail-on-warning --nitpicky -d build/site-doctrees -c docs/site . build/site
	A2A_GATEWAY_SITE=1 $(BIN)/python -m pytest -q tests/site
	@echo "the site is build/site/index.html"

# The Python is that of the environment, which is there before.
.venv-site/.setup: uv.lock | $(STAMP)
	UV_PROJECT_ENVIRONMENT=.venv-site $(UV) sync --quiet --locked --only-group site --python $(BIN)/python
	@touch $@

dist: $(STAMP) ## build wheel, source distribution and SBOM into dist/, and try them on PYTHONS (all; oldest,newest)
	rm -rf dist
	$(UV) build --quiet --python $(BIN)/python
	$(UV) export --quiet --locked --no-dev --all-extras --format cyclonedx1.5 --output-file dist/sbom.cdx.json
	$(BIN)/python -m tests.dist.sbom
	A2A_GATEWAY_DIST=$(PYTHONS) UV=$(if $(findstring /,$(UV)),$(abspath $(UV)),$(UV)) $(PYTEST) tests/dist

fixture: $(STAMP) ## record the ledger of this version, before it is released or when its schema has changed
	$(BIN)/python -m tests.ledgers.make

kits: .venv-kits/.setup

# What the official conformance kits import. The Python is that of the environment, which is there before.
.venv-kits/.setup: tests/conformance/requirements.txt
	$(UV) venv --quiet --clear --python $(BIN)/python .venv-kits
	$(UV) pip install --quiet --python .venv-kits --requirement $<
	@touch $@

contract: $(STAMP) ## write the contract matrix into docs/backends/README.md
	$(BIN)/python -m tests.contract

conformance: $(STAMP) ## run the official conformance kits and write docs/conformance.md
	@VENV=$(VENV) .ci/conformance

bench: $(STAMP) ## measure the gateway next to its peers and the floor, with the gates (needs a C compiler)
	@$(BENCH_SETUP) stack a2a fasta2a
	@cd bench && $(abspath $(BIN))/python bench.py run --targets gateway,gateway-grpc,gateway-python,gateway-process,gateway-a2a,gateway-langgraph,floor,floor-durable,a2a-sdk,a2a-sdk-grpc,a2a-sdk-tuned,a2a-sdk-sqlite,fasta2a-aio,a2a-proxy,a2a-proxy-tuned,langgraph-proxy,langgraph-proxy-tuned \
	  --scenarios all --rounds $(ROUNDS) --out results/bench.json && $(abspath $(BIN))/python compare.py results/bench.json --gate gates.json

bench-postgres: $(STAMP) ## the same on a PostgreSQL of its own (needs Debian's postgresql), by one process, two workers, two replicas
	@$(BENCH_SETUP) a2a
	@cd bench && $(abspath $(BIN))/python bench.py run --targets gateway,gateway-pg,gateway-pg-workers,a2a-sdk-cluster \
	  --scenarios send,send_64,stream,stream_paced,followed --rounds $(ROUNDS) --out results/postgres.json \
	  && $(abspath $(BIN))/python compare.py results/postgres.json --base gateway --gate gates-postgres.json

bench-instructions: $(STAMP) ## count the instructions of a turn, with gates that hold whatever else the machine does (needs valgrind and a C compiler)
	@cd bench && $(abspath $(BIN))/python instructions.py $(CURDIR) --rounds 1 --gate gates-instructions.json

soak: $(STAMP) ## look for growth under RATE=50 turns/s for MINUTES=30 (needs a C compiler)
	@cd bench && $(abspath $(BIN))/python soak.py --minutes $(MINUTES) --rate $(RATE)
