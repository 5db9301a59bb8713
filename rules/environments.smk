# The training environment of the modern line. Its path holds the hash of its lock, so a changed
# lock is another environment, and an environment that exists is never built again.


rule training_environment:
    output:
        "build/envs/modern-{hash}/environment.json",
    log:
        "build/logs/environment-{hash}.log",
    message:
        "building the training environment modern-{wildcards.hash} (once per lock, a few minutes)"
    shell:
        "{TRAINMARK} environment --locks envs --hash {wildcards.hash}"
        " --device {SETUP.hardware.device} --out {output:q} 2>&1 | tee {log:q}"


rule environment:
    input:
        str(PLANS.environment.stamp),
