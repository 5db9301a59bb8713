# Records become tables (JSON and CSV). With measure=never nothing is measured for them.
# A table whose records, plans or code changed since it was made was removed by common.smk.


def summaries_of(table):
    """The row summaries that a table needs, its parity references included."""
    if not MEASURE:
        return []
    rows = PLANS.of_table(table)
    references = {row.plan["parity_reference"]["row"] for row in rows}
    wanted = [(experiments.REFERENCE, name) for name in sorted(references)]
    wanted += [(row.table, row.row) for row in rows]
    return [summary_of(*pair) for pair in wanted]


# Snakemake makes a missing file again only where a target names it; one between two files that exist
# it overlooks. So targets name all that is derived.
SUMMARIES = sorted({path for table in TABLES for path in summaries_of(table)})


rule tables:
    input:
        lambda wildcards: summaries_of(wildcards.table),
    output:
        f"{RESULTS}/tables/{{table}}.json",
        f"{RESULTS}/tables/{{table}}.csv",
    log:
        f"{RESULTS}/logs/table-{{table}}.log",
    message:
        "aggregating {wildcards.table}"
    shell:
        "{TRAINMARK} tables --plans {PLAN_FOLDER} --records {RESULTS}/records --out {RESULTS}/tables"
        " --table {wildcards.table} 2> {log:q}"


# A target for every table, which also prints it: snakemake --cores 4 table_sharding
for table_id in TABLES:

    rule:
        name:
            f"table_{table_id}"
        input:
            f"{RESULTS}/tables/{table_id}.json",
            summaries_of(table_id),
        params:
            table=table_id,
        shell:
            "{TRAINMARK} tables --plans {PLAN_FOLDER} --records {RESULTS}/records"
            " --table {params.table} --print"
            " && {TRAINMARK} verdict --tables {RESULTS}/tables --table {params.table}"
