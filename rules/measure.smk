# One job per row. The job runs what has no record; the row's summary is its output.
# threads: all cores, and a host-wide lock in the launcher: one measurement at a time.
from functools import partial

MISMATCH = "--allow-mismatch" if SETTINGS.allow_mismatch else ""
AGAIN = "--again" if SETTINGS.measure == "again" else ""
AGAIN_STAMP = f"build/again-{HARDWARE}.stamp"
if IN_MAIN_PROCESS:
    interrupt.date_stamp(ROOT / AGAIN_STAMP, newer=bool(AGAIN))


def data_of(table, wildcards):
    row = PLANS.find(table, wildcards.row)
    return [f"build/data/{key}/manifest.json" for key in row.data_keys]


def summary_of(table, row):
    return f"{RESULTS}/rows/{table}/{row}.json"


# Rows of one table follow one another: a shared machine changes its speed within minutes.
for position, table_id in enumerate([experiments.REFERENCE, *TABLES]):

    rule:
        name:
            f"measure_{table_id}"
        input:
            AGAIN_STAMP,
            plan=ancient(f"{PLAN_FOLDER}/{table_id}/{{row}}.json"),
            environment=ancient(str(PLANS.environment.stamp)),
            data=ancient(partial(data_of, table_id)),
        output:
            summary_of(table_id, "{row}"),
        log:
            f"{RESULTS}/logs/{table_id}-{{row}}.log",
        priority: 100 - position
        threads: workflow.cores
        message:
            f"measuring {table_id}/{{wildcards.row}}"
        shell:
            "{TRAINMARK} measure --plan {input.plan:q} --results {RESULTS} --environment {input.environment:q}"
            " --log {log:q} --retries {SETTINGS.retries} --load-limit {SETTINGS.foreign_load_limit}"
            " --load-wait {SETTINGS.foreign_load_wait_seconds} {AGAIN} {MISMATCH}"


rule preflight:
    message:
        f"is this machine what config/hardware/{HARDWARE}.yaml declares?"
    shell:
        "{TRAINMARK} preflight --hardware config/hardware/{HARDWARE}.yaml {MISMATCH}"


# A target for every row: snakemake --cores 4 sharding_oss
for planned in PLANS.rows:
    if planned.table != experiments.REFERENCE:

        rule:
            name:
                f"{planned.table}_{planned.row}"
            input:
                summary_of(planned.table, planned.row),
            localrule: True
            message:
                f"{planned.table}/{planned.row} is measured"
            shell:
                "{TRAINMARK} verdict --row {input:q}"
