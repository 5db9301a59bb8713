# trainmark: train every row of four benchmark tables, then render the reference page.
#
#   snakemake --cores 4 report              measure what is missing, render the page (ja, en)
#   snakemake --cores 4 table_sharding      one table; one row: snakemake --cores 4 sharding_oss
#   snakemake --cores 4 status              what is measured, stale, missing, failed
#
# Settings: config/config.yaml, or --config key=value. What is measured: config/tables.yaml.
include: "rules/common.smk"
include: "rules/environments.smk"
include: "rules/container.smk"
include: "rules/data.smk"
include: "rules/measure.smk"
include: "rules/tables.smk"
include: "rules/page.smk"


localrules:
    report,
    status,
    check,
    archive,
    preflight,
    environment,
    clean_records,


rule report:
    default_target: True
    input:
        PAGES,
        TABLE_FILES,
        [] if RECORD_SETS else SUMMARIES,
    params:
        complete="--complete" if MEASURE else "",
    message:
        f"the page: {', '.join(PAGES)}"
    shell:
        "true"
        if RECORD_SETS
        else "{TRAINMARK} verdict --tables {RESULTS}/tables --logs {RESULTS}/logs {params.complete}"


rule status:
    message:
        f"rows on {HARDWARE}"
    shell:
        "{TRAINMARK} status --plans {PLAN_FOLDER} --records {RESULTS}/records"


rule check:
    input:
        TABLE_FILES,
        [] if RECORD_SETS else SUMMARIES,
    message:
        "checking that everything may be published"
    shell:
        "{TRAINMARK} check --tables {RESULTS}/tables --plans {PLAN_FOLDER} --records {RESULTS}/records"


rule archive:
    params:
        name=SETTINGS.name or "",
    message:
        "keeping the records as a record set"
    shell:
        "{TRAINMARK} archive --name {params.name:q} --plans {PLAN_FOLDER} --records {RESULTS}/records"


rule clean_records:
    params:
        yes="--yes" if SETTINGS.yes else "",
    message:
        "records that no row asks for"
    shell:
        "{TRAINMARK} clean --plans {PLAN_FOLDER} --records {RESULTS}/records {params.yes}"
