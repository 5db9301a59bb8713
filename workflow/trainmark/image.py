"""The image of the CUDA 10.2 line: its identity, its description, and whether it is there.

Standard library only: `environment_hash` is the identity of everything measured in the image, and
cheap enough for Snakemake's parse time. The image itself lives in the engine's storage;
`build/image/<hash>/image.json` says which one it is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmark import engine_commands
from trainmark.canonical import digest
from trainmark.engines import Engine, detect
from trainmark.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = ROOT / "docker" / "cu102"
OUT = Path("build/image")
LOCKS = ("torch.txt", "requirements.txt")
# Everything that decides what is in the image, beside the base.
CONTENT = ("Dockerfile", *LOCKS, "base-packages.txt", "build_ort_extension.py", "prove.py")
NAME = "localhost/trainmark-cu102"
BASE_NAME = "localhost/trainmark-base"
PACKAGES = "packages"
LABEL = "org.trainmark."


@dataclass(frozen=True)
class Wanted:
    """The `container` section of config/config.yaml."""

    engine: str = "auto"
    base: str = "auto"
    image: str | None = None


def wanted(config: Any) -> Wanted:
    """From a Config, its settings, their container section, or the same as dictionaries."""
    for key in ("settings", "container"):
        config = _get(config, key, config)
    return Wanted(
        _get(config, "engine", "auto") or "auto",
        _get(config, "base", "auto") or "auto",
        _get(config, "image", None),
    )


def _get(value: Any, key: str, default: Any) -> Any:
    if isinstance(value, Mapping):
        return value.get(key, default)
    return getattr(value, key, default)


# --- identity -------------------------------------------------------------------------------------


def public_base() -> str:
    """The Dockerfile's own default base."""
    for line in (CONTEXT / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("ARG BASE_IMAGE="):
            return line.partition("=")[2].strip()
    raise UserError("docker/cu102/Dockerfile: ARG BASE_IMAGE= is missing; restore it")


def resolve_base(base: str) -> str:
    """'packages' or an image reference. auto: packages where mmdebstrap is installed.

    Only what is certain without asking a registry decides, so that the identity is the same in
    every invocation on a machine.
    """
    if base == "auto":
        return PACKAGES if shutil.which("mmdebstrap") else public_base()
    if base != PACKAGES and "@sha256:" not in base and not base.startswith("localhost/"):
        raise UserError(
            f"container.base: found {base!r}; give an image by digest (NAME@sha256:...), "
            f"a local image (localhost/NAME:TAG) or '{PACKAGES}'"
        )
    return base


def base_identity(base: str) -> str:
    """What the base is known by: its reference, or the content of the recipe."""
    return (
        f"{PACKAGES}:{_file_digest('base.sh', 'base-packages.txt')}" if base == PACKAGES else base
    )


def environment_hash(config: Any) -> str:
    """16 hex digits: Dockerfile, locks, scripts and base; or the identity of a ready image."""
    settings = wanted(config)
    if settings.image:
        return digest({"image": image_identity(settings.image)})
    base = base_identity(resolve_base(settings.base))
    return digest({"base": base, "content": _file_digest(*CONTENT)})


def lock_hash() -> str:
    return _file_digest(*LOCKS)[:16]


def _file_digest(*names: str) -> str:
    total = hashlib.sha256()
    for name in names:
        path = CONTEXT / name
        if not path.is_file():
            raise UserError(f"docker/cu102/{name}: is missing; restore it (git checkout)")
        total.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def image_identity(image: str) -> str:
    """The digest of a ready image: from its reference, or read from its archive."""
    if "@sha256:" in image:
        return image.partition("@")[2]
    path = Path(image)
    if path.is_file():
        return archive_identity(path)
    raise UserError(
        f"container.image: found {image!r}, which is neither an image by digest "
        "(NAME@sha256:...) nor an existing archive"
    )


def archive_identity(path: Path) -> str:
    """The digest of the (first) image in an OCI or Docker archive; reads only the tar's headers."""
    try:
        with tarfile.open(path) as archive:
            names = archive.getnames()
            for name, find in (("index.json", _oci_digest), ("manifest.json", _docker_digest)):
                member = next((n for n in names if n.removeprefix("./") == name), None)
                if member and (file := archive.extractfile(member)):
                    return find(json.load(file))
    except (tarfile.TarError, OSError, ValueError, KeyError, IndexError) as error:
        raise UserError(f"container.image: {path} is not an image archive ({error})") from None
    raise UserError(
        f"container.image: {path} is not an image archive (no index.json or manifest.json); "
        "make one with: python -m trainmark container save"
    )


def _oci_digest(index: Any) -> str:
    return str(index["manifests"][0]["digest"])


def _docker_digest(manifest: Any) -> str:
    return "sha256:" + Path(manifest[0]["Config"]).name.removesuffix(".json")


# --- in the engine's storage ----------------------------------------------------------------------


def image_path(config: Any, out: Path = OUT) -> Path:
    """Where the image's description is (or will be)."""
    return out / environment_hash(config) / "image.json"


def ready(config: Any, out: Path = OUT) -> tuple[Engine, dict[str, Any]]:
    """The engine and the image to run. Raises UserError where either is missing; never builds."""
    path = image_path(config, out)
    if not path.is_file():
        raise UserError(
            f"the image of the cu102 line is not built ({path} is missing); "
            "build it with: snakemake --cores 4 container"
        )
    image = json.loads(path.read_text(encoding="utf-8"))
    engine = detect(wanted(config).engine)
    try:
        check_present(engine, image)
    except UserError:
        path.unlink()  # it describes nothing: the next invocation builds the image again
        raise
    return engine, image


def check_present(engine: Engine, image: Mapping[str, Any]) -> None:
    """The image that image.json names must be in the storage of the engine that will run it."""
    if engine.kind == "apptainer":
        if not Path(str(image.get("sif"))).is_file():
            raise UserError(_gone(str(image.get("sif"))))
        return
    found = inspect(engine.runner, image["image_id"])
    if found is None:
        raise UserError(_gone(f"image {image['reference']} in {engine.kind}'s storage"))


def _gone(what: str) -> str:
    return f"there is no {what} any more; build it again with: snakemake --cores 4 container"


def run_reference(engine: Engine, image: Mapping[str, Any]) -> str:
    """What to hand to `run_command` as the image: by id, so that a moved tag changes nothing."""
    return str(image["sif"] if engine.kind == "apptainer" else image["image_id"])


def inspect(program: str, reference: str) -> dict[str, Any] | None:
    """{id, digest, size_bytes, labels} of an image in the storage, or None."""
    command = engine_commands.inspect_command(program, reference)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return None
    value = json.loads(done.stdout)
    return describe(value[0] if isinstance(value, list) else value)


def describe(value: Mapping[str, Any]) -> dict[str, Any]:
    """One shape for the inspections of docker, podman and buildah."""
    if "FromImageID" in value:  # buildah
        config = value.get("OCIv1", {}).get("config", {})
        return {
            "id": value["FromImageID"],
            "digest": value.get("FromImageDigest"),
            "size_bytes": None,
            "labels": config.get("Labels") or {},
        }
    repository = next(iter(value.get("RepoDigests") or []), "")
    identifier = str(value["Id"]).removeprefix("sha256:")
    return {
        "id": identifier,
        "digest": value.get("Digest") or repository.partition("@")[2] or f"sha256:{identifier}",
        "size_bytes": value.get("Size"),
        "labels": (value.get("Config") or {}).get("Labels") or value.get("Labels") or {},
    }
