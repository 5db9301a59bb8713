# Tables, or kept record sets, become the page in every language.
RECORD_SETS = (
    [SETTINGS.records] if isinstance(SETTINGS.records, str) else SETTINGS.records or []
)
PAGE_FOLDER = (
    f"results/{Path(RECORD_SETS[0]).name}/page" if RECORD_SETS else f"{RESULTS}/page"
)
PAGES = [f"{PAGE_FOLDER}/{language}/index.html" for language in SETTINGS.languages]
PUBLISHED = (
    f"--published config/published/{SETTINGS.published}.yaml"
    if SETTINGS.published
    else ""
)
STRICTNESS = "--draft" if SETTINGS.draft else "" if MEASURE else "--strict"
if RECORD_SETS:
    SOURCES = f"--more {' '.join(map(shlex.quote, RECORD_SETS))}"
else:
    SOURCES = (
        f"--tables {RESULTS}/tables --records {RESULTS}/records --plans {PLAN_FOLDER}"
    )


def files_below(*folders):
    return sorted(
        str(path)
        for folder in folders
        for path in Path(folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


TABLE_FILES = (
    [] if RECORD_SETS else expand(f"{RESULTS}/tables/{{table}}.json", table=TABLES)
)


rule page:
    input:
        TABLE_FILES,
        files_below(*RECORD_SETS),
        files_below("report", "config/published", "workflow/trainmark"),
    output:
        PAGES,
    log:
        f"{PAGE_FOLDER}.log",
    params:
        languages=",".join(SETTINGS.languages),
    message:
        "rendering the page"
    shell:
        "{TRAINMARK} page {SOURCES} {PUBLISHED} --report report --out {PAGE_FOLDER}"
        " --languages {params.languages} {STRICTNESS} 2>&1 | tee {log:q}"
