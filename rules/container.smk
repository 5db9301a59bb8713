# The image of the CUDA 10.2 line. Its folder is named after the hash of Dockerfile, locks and base, so
# a changed lock is another image, and one that exists is never built again.
from trainmark.container import environment_hash

try:
    IMAGE_HASH = environment_hash(SETUP)
except UserError as error:
    print(f"trainmark: {error}", file=sys.stderr)
    sys.exit(2)

READY_IMAGE = (
    f"--image {shlex.quote(SETTINGS.container.image)}"
    if SETTINGS.container.image
    else ""
)


rule container:
    output:
        f"build/image/{IMAGE_HASH}/image.json",
    log:
        f"build/logs/container-{IMAGE_HASH}.log",
    threads: workflow.cores
    message:
        "building the image of the CUDA 10.2 line (4 to 15 min the first time, 12 GiB of disk)"
    shell:
        "{TRAINMARK} container build --out build/image --engine {SETTINGS.container.engine}"
        " --base {SETTINGS.container.base:q} {READY_IMAGE} 2>&1 | tee {log:q}"
