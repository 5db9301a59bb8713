# Tokenised data; its folder is named after the hash of the recipe.


rule data:
    input:
        ancient("build/recipes/{key}.json"),
    output:
        "build/data/{key}/manifest.json",
    log:
        "build/logs/data-{key}.log",
    message:
        "preparing data {wildcards.key}"
    shell:
        "{TRAINMARK} data --recipe {input:q} --out $(dirname {output:q}) 2>&1 | tee {log:q}"
