"""Making the image: base, build, proof, description; logged, and shown as it happens."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmark import engine_commands, engines
from trainmark.canonical import digest, write_json
from trainmark.engines import Engine, detect
from trainmark.errors import UserError
from trainmark.image import (
    BASE_NAME,
    CONTEXT,
    LABEL,
    NAME,
    OUT,
    PACKAGES,
    ROOT,
    Wanted,
    base_identity,
    check_present,
    environment_hash,
    inspect,
    lock_hash,
    public_base,
    resolve_base,
)

DISK_GIB = 12  # layers, pip's downloads and the engine's copies while building; the image has 3
LOG_LINES = 12
SHOWN = (
    "STEP ",
    "Step ",
    "#",
    "I: ",
    "trainmark: ",
)  # the builders' own headings; the rest is logged


class Log:
    """The build's output: kept in a file, its headings shown, its end quoted in errors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")

    def run(self, command: Sequence[str], what: str, env: Mapping[str, str] | None = None) -> None:
        """Run to the end. Raises UserError(what, last lines) on failure."""
        lines: list[str] = []
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"+ {shlex.join(command)}\n")
            with subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})},
            ) as process:
                assert process.stdout
                for line in process.stdout:
                    file.write(line)
                    file.flush()
                    if line.startswith(SHOWN):
                        print(line.rstrip()[:160], file=sys.stderr, flush=True)
                    lines = [*lines[1 - LOG_LINES :], line.rstrip()]
        if process.returncode:
            tail = "\n  ".join(line for line in lines if line)
            raise UserError(
                f"{what} (exit status {process.returncode}); log: {self.path}\n  {tail}"
            )


def build(settings: Wanted, out: Path = OUT, archive: bool = False) -> dict[str, Any]:
    """Make sure that the image exists and is described; returns the content of image.json."""
    name = environment_hash(settings)
    path = out / name / "image.json"
    engine = detect(settings.engine)
    print(f"engine: {engine.name} {engine.version}{' (rootless)' if engine.rootless else ''}")
    if (known := _known(path, engine)) is not None:
        print(f"image {known['reference']} is there already: nothing to do")
        return known
    if not engine.builder:
        raise UserError(
            f"container.engine: {engine.name} needs podman, buildah or docker to store the image; "
            f"{engines.INSTALL['podman']}"
        )
    log = Log(out / name / "build.log")
    started = time.monotonic()
    reference = f"{NAME}:{name}"
    found = inspect(engine.builder, reference)
    if found is None or (not settings.image and found["labels"].get(f"{LABEL}environment") != name):
        if settings.image:
            reference = obtain(engine, settings.image, reference, log)
        else:
            build_image(engine, resolve_base(settings.base), reference, name, log)
        seconds = time.monotonic() - started
        found = inspect(engine.builder, reference)
    else:
        seconds = None
    assert found is not None, f"{reference} vanished from the storage"
    image = {
        "schema_version": 1,
        "hash": name,
        "reference": reference,
        "image_id": found["id"],
        "digest": found["digest"],
        "size_bytes": found["size_bytes"] or _tree_size(engine, found["id"]),
        "build_seconds": None if seconds is None else round(seconds, 1),
        "engine": {"name": engine.name, "version": engine.version, "rootless": engine.rootless},
        "base": settings.image or resolve_base(settings.base),
        "lock": lock_hash(),
        "labels": found["labels"],
        "versions": versions(engine, found["id"]),
        "archive": None,
        "sif": None,
    }
    if archive or engine.kind == "apptainer":
        image["archive"] = str(save(engine, image, path.with_name("image.tar"), log))
    if engine.kind == "apptainer":
        image["sif"] = str(_sif(engine, Path(image["archive"]), log))
    write_json(path, image)
    return image


def _known(path: Path, engine: Engine) -> dict[str, Any] | None:
    """The image described before, if the engine still has it."""
    if not path.is_file():
        return None
    image: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    try:
        check_present(engine, image)
    except UserError:
        return None
    return image


def build_image(engine: Engine, base: str, reference: str, name: str, log: Log) -> None:
    check_disk(engine)
    base_reference = ensure_base(engine, base, log)
    arguments = {
        "BASE_IMAGE": base_reference,
        "ENVIRONMENT": name,
        "LOCK": lock_hash(),
        "REVISION": revision(),
    }
    with tempfile.TemporaryDirectory(prefix="trainmark-") as folder:
        command = engine_commands.build_command(
            engine.builder, str(CONTEXT), reference, arguments, secrets(Path(folder)), proxies()
        )
        log.run(command, "the image could not be built", {"DOCKER_BUILDKIT": "1"})


def ensure_base(engine: Engine, base: str, log: Log) -> str:
    """The base's reference in the engine's storage; built from packages or pulled if need be."""
    if base != PACKAGES:
        if inspect(engine.builder, base) is None:
            log.run(
                [engine.builder, "pull", base],
                f"container.base: {base} is not on this machine and could not be pulled; "
                f"correct it, or set container.base to '{PACKAGES}'",
            )
        return base
    reference = f"{BASE_NAME}:{digest(base_identity(base))}"
    if inspect(engine.builder, reference) is not None:
        return reference
    if shutil.which("mmdebstrap") is None:
        raise UserError(
            f"container.base: '{PACKAGES}' needs mmdebstrap; install it (Debian: apt-get install "
            f"mmdebstrap) or give an image by digest, for example {public_base()}"
        )
    mirror = os.environ.get("TRAINMARK_DEBIAN_MIRROR", "")
    with tempfile.TemporaryDirectory(prefix="trainmark-", dir=log.path.parent) as folder:
        tar = Path(folder) / "base.tar"
        recipe = ["sh", str(CONTEXT / "base.sh"), str(tar), *([mirror] if mirror else [])]
        log.run(recipe, "container.base: the bullseye base could not be made from packages")
        temporary = f"trainmark-base-{os.getpid()}"
        for command in engine_commands.import_commands(
            engine.builder, str(tar), reference, temporary
        ):
            log.run(command, f"container.base: {engine.name} could not import the base")
    return reference


def obtain(engine: Engine, image: str, reference: str, log: Log) -> str:
    """Pull or load a ready image, check that it holds our locks, and name it."""
    if "@sha256:" in image:
        if inspect(engine.builder, image) is None:
            log.run(
                [engine.builder, "pull", image],
                f"container.image: {image} is not on this machine and could not be pulled",
            )
        source = image
    else:
        log.run(
            engine_commands.load_command(engine.builder, image),
            f"container.image: {engine.name} could not load {image}",
        )
        source = _loaded_name(log)
    found = inspect(engine.builder, source)
    if found is None:
        raise UserError(f"container.image: {image} was read, but {source} is not in the storage")
    theirs = found["labels"].get(f"{LABEL}lock")
    if theirs != lock_hash():
        raise UserError(
            f"container.image: {image} was built from other locks ({theirs or 'no label'}) than "
            f"docker/cu102/*.txt ({lock_hash()}); build it from this checkout, or use that one's"
        )
    log.run([engine.builder, "tag", source, reference], "the image could not be named")
    return reference


def _loaded_name(log: Log) -> str:
    """The last line that `load` (or buildah's pull) printed: 'Loaded image: NAME' or an id."""
    lines = log.path.read_text(encoding="utf-8").split()
    return lines[-1].removeprefix("sha256:")


def secrets(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The machine's CA bundle and pip configuration, as files for build secrets."""
    found: dict[str, str] = {}
    bundle = next(
        (environ[n] for n in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE") if environ.get(n)),
        "/etc/ssl/certs/ca-certificates.crt",
    )
    if Path(bundle).is_file():
        found["ca_bundle"] = bundle
    text = pip_configuration(_pip_settings(), "ca_bundle" in found)
    file = folder / "pip.conf"
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    found["pip_conf"] = str(file)
    return found


def _pip_settings() -> dict[str, str]:
    """This machine's effective pip settings (files and PIP_* variables), the last one winning."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode and (pip := shutil.which("pip3") or shutil.which("pip")):
        done = subprocess.run([pip, "config", "list"], check=False, capture_output=True, text=True)
    settings: dict[str, str] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip("'\"")
    return settings


def pip_configuration(settings: Mapping[str, str], bundle: bool) -> str:
    """pip.conf for the build: how to reach the index, without paths of this machine."""
    lines = ["[global]"]
    if bundle:
        lines.append("cert = /run/secrets/ca_bundle")
    lines.append(f"timeout = {settings.get('default-timeout') or settings.get('timeout') or 60}")
    for key in ("index-url", "extra-index-url", "trusted-host", "proxy", "retries"):
        words = settings.get(key, "").replace("\\n", " ").split()
        if words := [word for word in words if not word.startswith(("file:", "/"))]:
            lines.append(f"{key} = {' '.join(words)}")
    return "\n".join(lines) + "\n"


def proxies(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Proxy variables that are set: predefined build arguments, not kept in the image."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    return [n for name in names for n in (name, name.lower()) if environ.get(n)]


def revision() -> str:
    """The source commit, or 'unknown' outside a repository."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=False, capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def check_disk(engine: Engine) -> None:
    """Refuse early what would fail after minutes."""
    storage = _storage(engine)
    free = shutil.disk_usage(storage).free / 2**30
    if free < DISK_GIB:
        raise UserError(
            f"{storage}: {free:.1f} GiB free, but building the image needs {DISK_GIB} GiB; "
            f"make room or move {engine.name}'s storage"
        )


def _storage(engine: Engine) -> Path:
    if engine.builder_kind == "docker":
        command = [engine.builder, "info", "--format", "{{.DockerRootDir}}"]
    elif Path(engine.builder).name == "podman":
        command = [engine.builder, "info", "--format", "{{.Store.GraphRoot}}"]
    else:
        command = []
    folder = ""
    if command:
        folder = subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
    path = Path(folder or "/var/lib/containers")
    while not path.exists():
        path = path.parent
    return path


def versions(engine: Engine, image_id: str) -> dict[str, Any] | None:
    """What the image's own proof prints: Python, CUDA, architectures, packages."""
    kind = Engine(engine.builder_kind, engine.builder, engine.builder, rootless=engine.rootless)
    if Path(engine.builder).name == "buildah" and engine.kind == "podman":
        kind = engine
    elif Path(engine.builder).name == "buildah":
        return None
    command = engine_commands.run_command(
        kind,
        image_id,
        ["python3", "-W", "ignore", "/opt/trainmark/prove.py"],
        name=f"trainmark-versions-{os.getpid()}",
        env=engine_commands.host_environment(),
    )
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        tail = "\n  ".join((done.stderr or done.stdout).strip().splitlines()[-LOG_LINES:])
        raise UserError(f"the image was built but does not run under {kind.kind}:\n  {tail}")
    return last_json(done.stdout)


def last_json(text: str) -> dict[str, Any]:
    """The object at the end of an output that frameworks may have written into before."""
    start = max(text.rfind("\n{\n") + 1, 0)
    result: dict[str, Any] = json.loads(text[start:])
    return result


def _tree_size(engine: Engine, image_id: str) -> int | None:
    """Size where inspect does not tell it (buildah), from the runner if there is one."""
    found = inspect(engine.runner, image_id) if engine.kind != "apptainer" else None
    return found["size_bytes"] if found else None


def save(engine: Engine, image: Mapping[str, Any], archive: Path, log: Log) -> Path:
    """Write the image to an archive, by way of a temporary name."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    log.run(
        engine_commands.save_command(engine.builder, image["reference"], str(partial)),
        f"the image could not be written to {archive}",
    )
    partial.rename(archive)
    return archive


def _sif(engine: Engine, archive: Path, log: Log) -> Path:
    sif = archive.with_suffix(".sif")
    docker_format = engine.builder_kind == "docker"
    command = engine_commands.sif_command(
        engine.runner, str(archive), str(sif), docker_format=docker_format
    )
    log.run(command, "apptainer could not convert the image")
    return sif
