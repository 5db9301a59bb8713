# trainmark. `make report` and `make test` do all their set-up themselves.
#   make report    train every row (on CPU ranks by default) and render the page
#   make test      all tests; lists what this machine cannot run, and why
#   make bench     what trainmark itself costs
#   make lint      formatting, linting, types, catalogues, schemas
#   make clean     remove the environments and caches (records stay; see snakemake clean_records)
# Options: CORES=4 ARGS="--config repeats=5" PYTHON=python3.12
CORES ?= 4
ARGS ?=
PYTHON ?=
SNAKEMAKE = .venv/bin/python -m snakemake --cores $(CORES)

.PHONY: report test bench lint format lock schemas clean setup setup-test

report: setup
	@$(SNAKEMAKE) report $(ARGS)

test: setup-test
	@$(SNAKEMAKE) environment --quiet all
	@.venv/bin/python -m pytest $(ARGS)

bench: setup-test
	@$(SNAKEMAKE) environment --quiet all
	@.venv/bin/python benchmarks/run.py $(ARGS)

lint: setup-test
	@sh envs/lint.sh

format: setup-test
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format . && .venv/bin/snakefmt Snakefile rules

lock:
	@python3 -m venv build/lock && build/lock/bin/pip install --quiet uv && build/lock/bin/python envs/lock.py

schemas: setup
	@PYTHONPATH=workflow .venv/bin/python -m trainmark schemas

setup:
	@PYTHON="$(PYTHON)" sh envs/setup.sh pipeline

setup-test:
	@PYTHON="$(PYTHON)" sh envs/setup.sh pipeline test

clean:
	rm -rf .venv build .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis
