"""The exact command lines of each container engine, as pure functions.

So the ones that cannot be tried on a machine (GPUs, apptainer) are tested all the same.
"""

from __future__ import annotations

import csv
import io
import os
import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainmark.engines import Engine, Mount
from trainmark.errors import UserError

# Never above the host's own limits; some sandboxes refuse what podman would ask for by itself.
WANTED_LIMITS = {"nofile": 65536, "nproc": 16384}


def host_limits(
    gpus: bool = False,
    hard: Callable[[int], tuple[int, int]] = resource.getrlimit,
) -> dict[str, str]:
    """`--ulimit` values: what training wants, but never above what the host allows."""
    numbers = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    limits = {}
    for name, wanted in WANTED_LIMITS.items():
        most = hard(numbers[name])[1]
        value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        limits[name] = f"{value}:{value}"
    if gpus:  # NCCL pins memory
        most = hard(resource.RLIMIT_MEMLOCK)[1]
        limits["memlock"] = "-1:-1" if most == resource.RLIM_INFINITY else f"{most}:{most}"
    return limits


def host_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables of this machine that change which numeric kernels are safe on its processor."""
    names = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_ENABLE_INSTRUCTIONS")
    return {name: environ[name] for name in names if environ.get(name)}


def run_command(
    engine: Engine,
    image: str,
    argv: Sequence[str],
    *,
    name: str,
    mounts: Sequence[Mount] = (),
    env: Mapping[str, str] | None = None,
    gpus: bool = False,
    user: tuple[int, int] | None = None,
    limits: Mapping[str, str] | None = None,
    shared_memory_mib: int = 1024,
    network: str = "none",
    workdir: str = "/tmp",
) -> list[str]:
    """The whole command that runs `argv` in `image` and removes the container afterwards.

    The root file system is read-only, /tmp is a scratch file system in memory, and there is no
    network but the loopback (gloo and NCCL need no other on one machine). Nothing is pulled.
    user: (uid, gid) that owns the output, by default the caller.
    """
    user = user or (os.getuid(), os.getgid())
    variables = {"HOME": "/tmp", "USER": "trainmark", "LOGNAME": "trainmark"}
    if network == "none":
        variables |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    variables |= dict(env or {})
    if engine.kind == "apptainer":
        return _apptainer(engine, image, argv, mounts, variables, gpus, workdir)
    command = [engine.runner, "run", "--rm", "--name", name, "--pull", "never"]
    command += ["--log-driver", "none", "--security-opt", "label=disable", "--network", network]
    if network == "none":  # torchrun looks its own name up
        command += ["--hostname", "trainmark", "--add-host", "trainmark:127.0.0.1"]
    command += ["--read-only", "--tmpfs", "/tmp:rw,exec,mode=1777"]
    command += ["--shm-size", f"{shared_memory_mib}m"]
    for key, value in (host_limits(gpus) if limits is None else limits).items():
        command += ["--ulimit", f"{key}={value}"]
    command += _user(engine, user)
    if gpus:
        docker = engine.kind == "docker"
        command += ["--gpus", "all"] if docker else ["--device", "nvidia.com/gpu=all"]
    for mount in mounts:
        command += ["--mount", _mount_field(mount)]
    for key, value in sorted(variables.items()):
        command += ["--env", f"{key}={value}"]
    return [*command, "--workdir", workdir, image, *argv]


def _user(engine: Engine, user: tuple[int, int]) -> list[str]:
    if engine.rootless and engine.kind == "docker":
        return ["--user", "0:0"]  # root inside is the caller outside
    keep = ["--userns", "keep-id"] if engine.rootless else []
    return [*keep, "--user", f"{user[0]}:{user[1]}"]


def _mount_field(mount: Mount) -> str:
    """One CSV record, as both engines read it: a comma in a path survives."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target or mount.source}"]
    if mount.read_only:
        fields.append("readonly")
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()


def _apptainer(
    engine: Engine,
    image: str,
    argv: Sequence[str],
    mounts: Sequence[Mount],
    variables: Mapping[str, str],
    gpus: bool,
    workdir: str,
) -> list[str]:
    """`image` is a .sif file. Runs as the caller, with the host's network and shared memory."""
    command = [engine.runner, "exec", "--containall", "--no-home", "--cleanenv"]
    if gpus:
        command.append("--nv")
    for mount in mounts:
        target = mount.target or mount.source
        for path in (mount.source, target):
            if ":" in path or "," in path:
                raise UserError(f"{path}: apptainer cannot mount a path with ':' or ','; move it")
        command += ["--bind", f"{mount.source}:{target}:{'ro' if mount.read_only else 'rw'}"]
    for key, value in sorted(variables.items()):
        # HOME is apptainer's own; --env splits at commas, so pass what has none of them.
        if key == "HOME":
            continue
        if "," in value:
            raise UserError(f"{key}: apptainer cannot pass a value with a comma: {value!r}")
        command += ["--env", f"{key}={value}"]
    return [*command, "--pwd", workdir, image, *argv]


def kill_command(engine: Engine, name: str) -> list[str]:
    """Ends everything in the container at once; empty where killing the process group does that."""
    if engine.kind == "apptainer":
        return []
    return [engine.runner, "kill", "--signal", "KILL", name]


def build_command(
    builder: str,
    context: str,
    reference: str,
    arguments: Mapping[str, str],
    secrets: Mapping[str, str],
    proxies: Sequence[str] = (),
) -> list[str]:
    """Build `context`/Dockerfile as `reference`. Secrets (id → file) leave nothing in the image.

    The host's network reaches what the host reaches, also where containers have no bridge; podman
    and buildah build in a chroot, which works rootless, in containers and in sandboxes.
    """
    docker = Path(builder).name.startswith("docker")
    command = [builder, "build"]
    command += ["--network", "host"]
    command += [] if docker else ["--isolation", "chroot", "--layers"]
    for key, value in arguments.items():
        command += ["--build-arg", f"{key}={value}"]
    for key in proxies:
        command += ["--build-arg", key]
    for key, path in secrets.items():
        command += ["--secret", f"id={key},src={path}"]
    return [*command, "--tag", reference, context]


def import_commands(builder: str, archive: str, reference: str, container: str) -> list[list[str]]:
    """Make an image of a root file system. buildah needs a working container for it."""
    if Path(builder).name != "buildah":
        return [[builder, "import", archive, reference]]
    return [
        [builder, "from", "--name", container, "scratch"],
        [builder, "add", container, archive, "/"],
        [builder, "commit", "--rm", container, reference],
    ]


def save_command(builder: str, reference: str, archive: str) -> list[str]:
    """Write the image to an archive: OCI, or Docker's own format from docker."""
    name = Path(builder).name
    if name.startswith("docker"):
        return [builder, "save", "--output", archive, reference]
    if name == "buildah":
        return [builder, "push", reference, f"oci-archive:{archive}:{reference}"]
    return [builder, "save", "--format", "oci-archive", "--output", archive, reference]


def load_command(builder: str, archive: str) -> list[str]:
    """Read an archive into the engine's storage; prints the image's name or id."""
    name = Path(builder).name
    if name == "buildah":
        return [builder, "pull", f"oci-archive:{archive}"]
    return [builder, "load", "--input", archive]


def inspect_command(builder: str, reference: str) -> list[str]:
    name = Path(builder).name
    if name == "buildah":
        return [builder, "inspect", "--type", "image", reference]
    return [builder, "image", "inspect", reference]


def sif_command(apptainer: str, archive: str, sif: str, *, docker_format: bool) -> list[str]:
    """Turn the archive into apptainer's own format."""
    transport = "docker-archive" if docker_format else "oci-archive"
    return [apptainer, "build", sif, f"{transport}:{archive}"]
