# Tables become the page, in every language; then the verdict, the check, the status.
PAGE_FOLDER = f"{RESULTS}/page"
PAGES = [f"{PAGE_FOLDER}/{language}/index.html" for language in SETTINGS.languages]


def files_below(*folders):
    return sorted(
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


rule page:
    input:
        expand(f"{RESULTS}/tables/{{table}}.json", table=TABLES),
        files_below("report", "config/published", "workflow/trainmark"),
    output:
        PAGES,
    log:
        f"{RESULTS}/logs/page.log",
    message:
        "rendering the page"
    params:
        published=f"config/published/{SETTINGS.published}.yaml",
        languages=",".join(SETTINGS.languages),
        draft="--draft" if SETTINGS.draft else "",
    shell:
        "{TRAINMARK} page --tables {RESULTS}/tables --records {RESULTS}/records --plans {PLAN_FOLDER}"
        " --published {params.published} --report report --out {PAGE_FOLDER}"
        " --languages {params.languages} {params.draft} 2>&1 | tee {log:q}"
