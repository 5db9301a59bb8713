"""Engines, identity and description of the image: everything that needs no engine to be tested."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from trainmark import container, engine_commands, engines, image, image_build
from trainmark.engines import Engine, Mount
from trainmark.errors import UserError

ANSWERS = {
    "docker": "20.10.24 [name=seccomp,profile=default]",
    "podman": "4.3.1",
    "buildah": "buildah version 1.28.2 (image-spec 1.1.0-rc2, runtime-spec 1.0.2-dev)",
    "apptainer": "apptainer version 1.3.4",
}
DAEMON_DOWN = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?"


def machine(*installed: str, broken: dict[str, str] | None = None):
    """`which` and `probe` of a machine with these programs."""

    def which(name: str) -> str | None:
        return f"/usr/bin/{name}" if name in installed else None

    def probe(command: Sequence[str]) -> tuple[int, str]:
        name = Path(command[0]).name
        if broken and name in broken:
            return 1, broken[name]
        return 0, ANSWERS[name]

    return which, probe


# --- detection ---


def test_auto_takes_the_first_engine_that_works() -> None:
    which, probe = machine("docker", "podman", broken={"docker": DAEMON_DOWN})
    engine = engines.detect("auto", which, probe)
    assert (engine.name, engine.runner, engine.builder) == (
        "podman", "/usr/bin/podman", "/usr/bin/podman",
    )  # fmt: skip
    assert engines.detect("auto", *machine("docker", "podman")).name == "docker"


def test_no_engine_at_all_says_what_to_install() -> None:
    with pytest.raises(UserError, match="no container engine works.*apt-get install podman"):
        engines.detect("auto", *machine())


def test_a_configured_engine_is_never_replaced_by_another() -> None:
    with pytest.raises(UserError, match="docker is not installed.*or set .* to podman"):
        engines.detect("docker", *machine("podman"))
    which, probe = machine("docker", "podman", broken={"docker": DAEMON_DOWN})
    with pytest.raises(UserError, match="its daemon does not answer .*Is it running"):
        engines.detect("docker", which, probe)
    with pytest.raises(UserError, match="there is no engine 'rkt'; allowed are auto, docker"):
        engines.detect("rkt", *machine("podman"))


def test_buildah_builds_and_podman_runs() -> None:
    engine = engines.detect("buildah", *machine("buildah", "podman"))
    assert (engine.builder, engine.runner, engine.kind) == (
        "/usr/bin/buildah", "/usr/bin/podman", "podman",
    )  # fmt: skip
    with pytest.raises(UserError, match="buildah can build the image, but nothing here runs it"):
        engines.detect("buildah", *machine("buildah"))


def test_apptainer_takes_a_builder_where_there_is_one() -> None:
    engine = engines.detect("apptainer", *machine("apptainer", "buildah"))
    assert (engine.runner, engine.builder) == ("/usr/bin/apptainer", "/usr/bin/buildah")
    assert engines.detect("apptainer", *machine("apptainer")).builder == ""


def test_the_survey_says_what_each_engine_can_do() -> None:
    which, probe = machine("docker", "buildah", "apptainer", broken={"docker": DAEMON_DOWN})
    lines = engines.abilities(engines.survey(which, probe))
    assert lines[0].startswith("docker: is installed, but its daemon does not answer")
    assert lines[1] == "podman: is not installed"
    assert "needs podman to run it" in lines[2]
    assert lines[3].endswith("runs the image, built by buildah")


def test_a_hanging_engine_counts_as_not_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "PROBE_SECONDS", 0.2)
    assert engines.run_probe(["sleep", "5"]) == (124, "no answer within 0.2 s")
    assert engines.run_probe(["/no/such/engine"])[0] == 127


# --- exact command lines ---

PODMAN = Engine("podman", "podman", "podman")
DOCKER = Engine("docker", "docker", "docker")
APPTAINER = Engine("apptainer", "apptainer", "podman")
MOUNTS = [Mount("/repo/workflow"), Mount("/out", read_only=False), Mount("/tmp/x", "/todo")]


def line(engine: Engine, **more) -> str:
    options = {
        "name": "trainmark-1", "mounts": MOUNTS, "env": {"PYTHONPATH": "/repo/workflow"},
        "user": (1234, 100), "limits": {"nofile": "20000:20000", "nproc": "16384:16384"}, **more,
    }  # fmt: skip
    argv = ["python3", "-m", "trainmark_worker"]
    return " ".join(engine_commands.run_command(engine, "IMAGE", argv, **options))


PODMAN_LINE = (
    "podman run --rm --name trainmark-1 --pull never --log-driver none"
    " --security-opt label=disable --network none --hostname trainmark"
    " --add-host trainmark:127.0.0.1 --read-only --tmpfs /tmp:rw,exec,mode=1777 --shm-size 1024m"
    " --ulimit nofile=20000:20000 --ulimit nproc=16384:16384 --user 1234:100"
    " --mount type=bind,source=/repo/workflow,target=/repo/workflow,readonly"
    " --mount type=bind,source=/out,target=/out"
    " --mount type=bind,source=/tmp/x,target=/todo,readonly"
    " --env GLOO_SOCKET_IFNAME=lo --env HOME=/tmp --env LOGNAME=trainmark"
    " --env NCCL_SOCKET_IFNAME=lo --env PYTHONPATH=/repo/workflow --env USER=trainmark"
    " --workdir /tmp IMAGE python3 -m trainmark_worker"
)


def test_podman_runs_without_network_as_the_caller() -> None:
    assert line(PODMAN) == PODMAN_LINE


def test_docker_differs_in_its_name_only() -> None:
    assert line(DOCKER) == PODMAN_LINE.replace("podman", "docker", 1)


def test_gpus_are_requested_in_each_engines_way() -> None:
    gpu = {"gpus": True}
    user = "--user 1234:100"
    assert f"{user} --gpus all --mount" in line(DOCKER, **gpu)
    assert f"{user} --device nvidia.com/gpu=all --mount" in line(PODMAN, **gpu)
    assert "exec --containall --no-home --cleanenv --nv --bind" in line(APPTAINER, **gpu)
    for engine in (DOCKER, PODMAN, APPTAINER):
        assert "gpu" not in line(engine).replace("trainmark", "") and "--nv" not in line(engine)


def test_rootless_engines_map_the_caller() -> None:
    podman = Engine("podman", "podman", "podman", rootless=True)
    docker = Engine("docker", "docker", "docker", rootless=True)
    assert "--userns keep-id --user 1234:100" in line(podman)
    assert "--user 0:0" in line(docker) and "--userns" not in line(docker)


def test_apptainer_runs_a_sif_as_the_caller() -> None:
    assert line(APPTAINER) == (
        "apptainer exec --containall --no-home --cleanenv"
        " --bind /repo/workflow:/repo/workflow:ro --bind /out:/out:rw --bind /tmp/x:/todo:ro"
        " --env GLOO_SOCKET_IFNAME=lo --env LOGNAME=trainmark --env NCCL_SOCKET_IFNAME=lo"
        " --env PYTHONPATH=/repo/workflow --env USER=trainmark"
        " --pwd /tmp IMAGE python3 -m trainmark_worker"
    )
    with pytest.raises(UserError, match="cannot mount a path with ':'"):
        line(APPTAINER, mounts=[Mount("/a:b")])


def test_odd_paths_survive() -> None:
    assert '"source=/da,ta"' in line(PODMAN, mounts=[Mount("/da,ta")])
    assert "source=/da ta" in line(PODMAN, mounts=[Mount("/da ta")])


def test_a_network_can_be_asked_for() -> None:
    text = line(PODMAN, network="host")
    assert "--network host" in text and "GLOO_SOCKET_IFNAME" not in text


def test_killing_goes_through_the_engine() -> None:
    kill = engine_commands.kill_command
    assert kill(PODMAN, "n") == ["podman", "kill", "--signal", "KILL", "n"]
    assert kill(DOCKER, "n") == ["docker", "kill", "--signal", "KILL", "n"]
    assert kill(APPTAINER, "n") == []


def test_limits_never_exceed_the_hosts() -> None:
    def limits(most: int, gpus: bool = False) -> dict[str, str]:
        return engine_commands.host_limits(gpus, lambda number: (most, most))

    assert limits(5000) == {"nofile": "5000:5000", "nproc": "5000:5000"}
    assert limits(10**9) == {"nofile": "65536:65536", "nproc": "16384:16384"}
    assert limits(-1, True) == {
        "nofile": "65536:65536", "nproc": "16384:16384", "memlock": "-1:-1",
    }  # fmt: skip


def build(builder: str) -> str:
    return " ".join(
        engine_commands.build_command(
            builder, "docker/cu102", "localhost/t:1", {"BASE_IMAGE": "b"},
            {"pip_conf": "/s/pip.conf", "ca_bundle": "/ca.crt"}, ["HTTPS_PROXY"],
        )
    )  # fmt: skip


def test_build_command_lines() -> None:
    rest = (
        " --build-arg BASE_IMAGE=b --build-arg HTTPS_PROXY --secret id=pip_conf,src=/s/pip.conf"
        " --secret id=ca_bundle,src=/ca.crt --tag localhost/t:1 docker/cu102"
    )
    chroot = " --network host --isolation chroot --layers"
    assert build("buildah") == "buildah build" + chroot + rest
    assert build("/usr/bin/podman") == "/usr/bin/podman build" + chroot + rest
    assert build("docker") == "docker build --network host" + rest


def test_archives_in_each_engines_way() -> None:
    save, load = engine_commands.save_command, engine_commands.load_command
    assert save("podman", "r", "a.tar") == [
        "podman", "save", "--format", "oci-archive", "--output", "a.tar", "r",
    ]  # fmt: skip
    assert save("docker", "r", "a.tar") == ["docker", "save", "--output", "a.tar", "r"]
    assert save("buildah", "r", "a.tar") == ["buildah", "push", "r", "oci-archive:a.tar:r"]
    assert load("podman", "a.tar") == ["podman", "load", "--input", "a.tar"]
    assert load("buildah", "a.tar") == ["buildah", "pull", "oci-archive:a.tar"]
    sif = engine_commands.sif_command
    assert sif("apptainer", "a.tar", "a.sif", docker_format=False) == [
        "apptainer", "build", "a.sif", "oci-archive:a.tar",
    ]  # fmt: skip
    assert sif("apptainer", "a.tar", "a.sif", docker_format=True)[-1] == "docker-archive:a.tar"
    assert engine_commands.import_commands("podman", "b.tar", "r", "c") == [
        ["podman", "import", "b.tar", "r"]
    ]
    assert len(engine_commands.import_commands("buildah", "b.tar", "r", "c")) == 3


# --- identity ---

PUBLIC = "docker.io/library/debian@sha256:" + "0" * 64


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cu102"
    shutil.copytree(image.CONTEXT, folder)
    monkeypatch.setattr(image, "CONTEXT", folder)
    return folder


def identity(base: str = "packages", **more) -> str:
    return image.environment_hash({"container": {"base": base, **more}})


def test_the_identity_follows_content_only(context: Path) -> None:
    first = identity()
    assert len(first) == 16 and int(first, 16) >= 0
    for file in context.iterdir():
        file.touch()
    assert identity() == first
    lock = context / "requirements.txt"
    lock.write_text(lock.read_text() + "\n# changed\n")
    assert identity() != first


@pytest.mark.parametrize("name", [*image.CONTENT, "base.sh"])
def test_every_file_that_is_built_in_counts(context: Path, name: str) -> None:
    first = identity()
    with (context / name).open("a") as file:
        file.write("\n")
    assert identity() != first


def test_the_dockerfile_copies_only_files_that_count() -> None:
    text = (image.CONTEXT / "Dockerfile").read_text()
    copied = {
        word for row in text.splitlines() if row.startswith("COPY") for word in row.split()[1:-1]
    }
    assert copied <= set(image.CONTENT)


def test_the_base_is_part_of_the_identity() -> None:
    assert len({identity(), identity(PUBLIC), identity("localhost/b:1")}) == 3


def test_a_base_that_can_change_unnoticed_is_refused() -> None:
    with pytest.raises(UserError, match="container.base: found 'debian:bullseye'.*by digest"):
        identity("debian:bullseye")


def test_auto_base_depends_on_mmdebstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/mmdebstrap")
    assert image.resolve_base("auto") == "packages"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert image.resolve_base("auto") == image.public_base()
    assert "@sha256:" in image.public_base()


def test_the_container_section_is_found_wherever_it_is() -> None:
    class Section:
        engine, base, image = "podman", "packages", None

    class Settings:
        container = Section()

    class Config:
        settings = Settings()

    expected = image.Wanted("podman", "packages", None)
    assert image.wanted(Config()) == image.wanted(Section()) == expected
    assert image.wanted({"container": {"engine": "podman", "base": "packages"}}) == expected
    assert image.wanted({}) == image.Wanted()


def tar(path: Path, name: str, value: object) -> Path:
    data = json.dumps(value).encode()
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return path


def test_a_ready_image_is_known_by_its_digest(tmp_path: Path) -> None:
    reference = "registry.example/t@sha256:" + "a" * 64
    assert image.image_identity(reference) == "sha256:" + "a" * 64
    oci = tar(tmp_path / "oci.tar", "index.json", {"manifests": [{"digest": "sha256:1"}]})
    docker = tar(tmp_path / "docker.tar", "manifest.json", [{"Config": "ab12.json"}])
    assert image.image_identity(str(oci)) == "sha256:1"
    assert image.image_identity(str(docker)) == "sha256:ab12"
    assert identity(image=str(oci)) != identity(image=str(docker)) != identity()


def test_a_wrong_ready_image_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither an image by digest .* nor an existing archive"):
        image.image_identity("registry.example/t:latest")
    other = tar(tmp_path / "other.tar", "x.json", {})
    with pytest.raises(UserError, match="is not an image archive"):
        image.image_identity(str(other))
    text = tmp_path / "text.tar"
    text.write_text("no tar")
    with pytest.raises(UserError, match="is not an image archive"):
        image.image_identity(str(text))


# --- storage, secrets, logs ---


def test_inspections_of_all_engines_have_one_shape() -> None:
    podman = image.describe(
        {"Id": "ab", "Digest": "sha256:1", "Size": 5, "Config": {"Labels": {"a": "b"}}}
    )
    docker = image.describe(
        {"Id": "sha256:ab", "RepoDigests": ["r@sha256:2"], "Size": 5, "Config": {"Labels": None}}
    )
    local = image.describe({"Id": "sha256:ab", "RepoDigests": [], "Config": {}})
    buildah = image.describe(
        {"FromImageID": "ab", "FromImageDigest": "sha256:3",
         "OCIv1": {"config": {"Labels": {"a": "b"}}}}
    )  # fmt: skip
    assert podman == {"id": "ab", "digest": "sha256:1", "size_bytes": 5, "labels": {"a": "b"}}
    assert (docker["id"], docker["digest"], docker["labels"]) == ("ab", "sha256:2", {})
    assert local["digest"] == "sha256:ab"
    assert (buildah["id"], buildah["digest"]) == ("ab", "sha256:3")


def test_pip_configuration_keeps_the_index_and_drops_paths() -> None:
    settings = {
        "index-url": "https://index.example/simple",
        "extra-index-url": "file:///opt/simple https://more.example/simple",
        "find-links": "/opt/wheels",
        "cert": "/etc/ssl/ca.crt",
        "default-timeout": "180",
    }
    assert image_build.pip_configuration(settings, True).splitlines() == [
        "[global]",
        "cert = /run/secrets/ca_bundle",
        "timeout = 180",
        "index-url = https://index.example/simple",
        "extra-index-url = https://more.example/simple",
    ]
    assert "cert" not in image_build.pip_configuration({}, False)


def test_what_frameworks_print_before_the_proof_is_skipped() -> None:
    assert image_build.last_json('[INFO] x\n{\n "python": "3.9.2"\n}\n') == {"python": "3.9.2"}
    assert image_build.last_json('{\n "a": {}\n}') == {"a": {}}


def test_proxies_are_passed_by_name_only() -> None:
    assert image_build.proxies({"HTTPS_PROXY": "http://user:secret@p", "no_proxy": ""}) == [
        "HTTPS_PROXY"
    ]


def test_a_failing_build_step_quotes_the_end_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = image_build.Log(tmp_path / "build.log")
    script = "echo STEP 1; for i in $(seq 30); do echo line $i; done; echo no space >&2; exit 3"
    with pytest.raises(UserError) as error:
        log.run(["sh", "-c", script], "the image could not be built")
    text = str(error.value)
    assert text.startswith("the image could not be built (exit status 3); log: ")
    assert text.endswith("no space") and "line 30" in text and "line 2\n" not in text
    assert "STEP 1" in capsys.readouterr().err
    assert "line 2\n" in log.path.read_text()


def test_too_little_disk_is_said_before_building(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_build, "_storage", lambda engine: Path("/storage"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 8, 2**30))
    with pytest.raises(UserError, match="/storage: 1.0 GiB free, but building .* 12 GiB"):
        image_build.check_disk(PODMAN)


def test_packages_without_mmdebstrap_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_build, "inspect", lambda program, reference: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    log = image_build.Log(tmp_path / "log")
    with pytest.raises(UserError, match="needs mmdebstrap; install it .*by digest"):
        image_build.ensure_base(PODMAN, "packages", log)


def test_a_missing_base_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_build, "inspect", lambda program, reference: None)
    log = image_build.Log(tmp_path / "log")
    with pytest.raises(UserError, match="container.base: .*could not be pulled; correct it"):
        image_build.ensure_base(Engine("podman", "false", "false"), PUBLIC, log)


def test_an_image_with_other_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"id": "ab", "labels": {"org.trainmark.lock": "0123"}}
    monkeypatch.setattr(image_build, "inspect", lambda program, reference: found)
    log = image_build.Log(tmp_path / "log")
    reference = "registry.example/t@sha256:" + "a" * 64
    with pytest.raises(UserError, match=r"built from other locks \(0123\)"):
        image_build.obtain(PODMAN, reference, "localhost/t:1", log)


# --- ready or not ---


def test_an_image_that_was_never_built_says_how(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not built .*snakemake --cores 4 container"):
        image.ready({"container": {"base": "packages"}}, tmp_path)


def test_a_description_of_a_vanished_image_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"container": {"base": "packages"}}
    path = image.image_path(settings, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"image_id": "ab", "reference": "localhost/t:1"}))
    monkeypatch.setattr(image, "detect", lambda name: PODMAN)
    monkeypatch.setattr(image, "inspect", lambda program, reference: None)
    with pytest.raises(UserError, match="no image localhost/t:1 in podman's storage any more"):
        image.ready(settings, tmp_path)
    assert not path.exists()


def test_the_worker_sees_its_code_and_data_read_only(tmp_path: Path) -> None:
    spec = {"threads_per_rank": 2, "device": "cpu"}
    todo = {"runs": [{"spec": spec, "data": "/data/b"}, {"spec": spec, "data": "/data/a"}]}
    command = container.worker_command(
        PODMAN, {"image_id": "ab"}, todo, tmp_path, Path("/out"), Path("/repo/workflow"), "n"
    )
    text = " ".join(command)
    for path in ("/repo/workflow", "/data/a", "/data/b"):
        assert f"source={path},target={path},readonly" in text
    assert f"source={tmp_path},target=/todo,readonly" in text
    assert "source=/out,target=/out " in text
    assert "OMP_NUM_THREADS=2" in text and "--device" not in text
    assert text.endswith("ab python3 -m trainmark_worker --todo /todo/todo.json --out /out")
    cuda = {"runs": [{"spec": {**spec, "device": "cuda"}, "data": "/d"}]}
    assert "--device nvidia.com/gpu=all" in " ".join(
        container.worker_command(
            PODMAN, {"image_id": "ab"}, cuda, tmp_path, Path("/out"), Path("/w"), "n"
        )
    )


def test_a_worker_never_starts_without_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "detect", lambda name: PODMAN)
    monkeypatch.setattr(image, "inspect", lambda program, reference: None)
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(a))
    described = {"engine": {"name": "podman"}, "image_id": "ab", "reference": "localhost/bogus:1"}
    with pytest.raises(UserError, match="no image localhost/bogus:1 in podman's storage"):
        container.start_worker(described, {"runs": []}, tmp_path, tmp_path, io.StringIO())
    assert started == []
