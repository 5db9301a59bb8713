#!/bin/sh
# Everything `make lint` checks; each line fails on its own.
set -u
cd "$(dirname "$0")/.."
bin=.venv/bin
failed=0
check() { echo "lint: $*" >&2; "$@" || failed=1; }
export PYTHONPATH=workflow

check $bin/ruff check .
check $bin/ruff format --check .
check $bin/snakefmt --check Snakefile rules
check $bin/mypy workflow/trainmark
check $bin/python envs/lint_snakemake.py
check $bin/python -m trainmark schemas --check
check $bin/python -m trainmark catalogues --check
[ $failed = 0 ] && echo "lint: clean" >&2
exit $failed
