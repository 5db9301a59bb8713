# Reads and validates the configuration, plans every run and finds what is missing.
# Whether something is measured is decided here, by content alone; no file time matters.
import os
import shlex
import sys
from pathlib import Path

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT / "workflow"))

from trainmark import estimate, experiments, freshness, interrupt
from trainmark.config import load as load_config
from trainmark.errors import UserError

IN_MAIN_PROCESS = workflow.exec_mode == workflow.exec_mode.DEFAULT

try:
    SETUP = load_config(ROOT, dict(config))
    PLANS = experiments.build(SETUP, ROOT)
except UserError as error:
    print(f"trainmark: {error}", file=sys.stderr)
    sys.exit(2)

SETTINGS = SETUP.settings
HARDWARE = SETTINGS.hardware
RESULTS = f"results/{HARDWARE}"
PLAN_FOLDER = f"build/plans/{HARDWARE}"
MEASURE = SETTINGS.measure != "never"
TABLES = [table.id for table in SETUP.tables.tables]

# One command line for every rule: this Python, this checkout's code.
TRAINMARK = f"PYTHONPATH={shlex.quote(str(ROOT / 'workflow'))} {shlex.quote(sys.executable)} -m trainmark"


onstart:
    interrupt.pass_on_sigterm()


if IN_MAIN_PROCESS:
    interrupt.forget_dead_pipeline(ROOT)
    interrupt.correct_future_times(ROOT, ROOT / RESULTS)
    experiments.write(PLANS, ROOT)
    if MEASURE:
        experiments.find_missing(PLANS, ROOT, Path(RESULTS))
        if SETTINGS.measure == "again":
            experiments.take_all_for_missing(PLANS)
        print(
            estimate.announcement(
                PLANS.rows,
                HARDWARE,
                ROOT / RESULTS / "records",
                (ROOT / PLANS.environment.stamp).is_file(),
            ),
            file=sys.stderr,
        )
    freshness.drop_outdated_tables(ROOT / PLAN_FOLDER, ROOT / RESULTS)
