"""The built image: what is in it, what is not, and how a container of it behaves."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from trainmark import container, engine_commands, image, image_build
from trainmark.engines import Engine, Mount
from trainmark.errors import UserError

ROOT = Path(__file__).parents[2]


def run(engine: Engine, built: dict[str, Any], script: str, **more: Any) -> str:
    """Output of a shell script in the image."""
    reference = image.run_reference(engine, built)
    name = f"trainmark-test-{os.getpid()}-{time.monotonic_ns()}"
    command = engine_commands.run_command(
        engine, reference, ["sh", "-c", script], name=name, **more
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_image_is_a_cuda_102_build(built: dict[str, Any]) -> None:
    versions = built["versions"]
    assert versions["cuda"] == "10.2"
    assert "sm_70" in versions["architectures"]
    assert versions["python"].startswith("3.9.")
    assert versions["packages"]["torch"] == "1.12.1"
    assert versions["packages"]["megatron-core"] == "0.3.0"


def test_what_identifies_it_is_written_down(built: dict[str, Any], described: dict) -> None:
    assert described["hash"] == image.environment_hash(image.Wanted()) == built["hash"]
    assert described["digest"].startswith("sha256:")
    assert described["size_bytes"] > 10**9
    assert described["labels"]["org.trainmark.environment"] == built["hash"]
    assert described["labels"]["org.trainmark.lock"] == image.lock_hash()
    assert described["labels"]["org.opencontainers.image.revision"]


def test_a_second_build_does_nothing(
    built: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(image_build, "build_image", lambda *_: pytest.fail("it was built again"))
    again = image_build.build(image.Wanted(), ROOT / "build" / "image")
    assert again["digest"] == built["digest"]
    assert "nothing to do" in capsys.readouterr().out


def test_a_lost_description_is_written_again(
    engine: Engine, built: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_build, "build_image", lambda *_: pytest.fail("it was built again"))
    again = image_build.build(image.Wanted(), tmp_path)
    assert again["image_id"] == built["image_id"]


def test_no_secret_is_left(engine: Engine, built: dict[str, Any]) -> None:
    script = (
        "find /run/secrets /etc/pip.conf -type f 2>/dev/null;"
        " test -s /etc/ssl/certs/ca-certificates.crt"
        " && echo bundle; python3 -m pip config list; cat /proc/1/environ | tr '\\0' '\\n'"
    )
    output = run(engine, built, script)
    assert output.startswith("bundle\n")
    assert "index-url" not in output and "proxy" not in output.lower()
    history = subprocess.run(
        [engine.builder, "history", "--no-trunc", built["image_id"]], capture_output=True, text=True
    ).stdout
    assert "ca_bundle" in history  # named, but not its content
    assert "BEGIN CERTIFICATE" not in history and "http" not in history


def test_its_own_user_is_an_ordinary_one(engine: Engine, built: dict[str, Any]) -> None:
    done = subprocess.run(
        engine_commands.inspect_command(engine.runner, built["image_id"]),
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout)[0]["Config"]["User"] == "trainmark"


def test_a_container_is_closed(engine: Engine, built: dict[str, Any], tmp_path: Path) -> None:
    read, write = tmp_path / "read", tmp_path / "write"
    read.mkdir()
    write.mkdir()
    script = (
        f"id -u; ls /sys/class/net; touch /opt/x {read}/x 2>/dev/null && echo open;"
        f" echo ok > {write}/result; cp /bin/true /tmp/t && /tmp/t && echo scratch;"
        " df -m /dev/shm | tail -1 | tr -s ' ' | cut -d ' ' -f 2"
        "; python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'"
    )
    mounts = [Mount(str(read)), Mount(str(write), read_only=False)]
    words = run(engine, built, script, mounts=mounts, shared_memory_mib=256).split()
    assert words == [str(os.getuid()), "lo", "scratch", "256", "127.0.0.1"]
    assert (write / "result").read_text() == "ok\n"
    assert (write / "result").stat().st_uid == os.getuid()


def test_a_container_is_killed_by_name(engine: Engine, built: dict[str, Any]) -> None:
    name = f"trainmark-test-kill-{os.getpid()}"
    reference = image.run_reference(engine, built)
    command = engine_commands.run_command(engine, reference, ["sleep", "600"], name=name)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        kill = engine_commands.kill_command(engine, name)
        for _ in range(100):
            if subprocess.run(kill, capture_output=True).returncode == 0:
                break
            time.sleep(0.2)
        assert process.wait(20) != 0
    finally:
        process.kill()
        process.wait()


def test_onnx_runtime_tells_why_it_cannot_use_a_gpu(engine: Engine, built: dict[str, Any]) -> None:
    if all(built["versions"]["cuda_libraries"].values()):
        pytest.skip("this base brings the CUDA libraries")
    workflow = str(ROOT / "workflow")
    code = (
        "from trainmark_worker.strategies.ort import why_no_cuda; print(why_no_cuda())\n"
        "import onnxruntime, os; print('its own word:', os.environ['ORT_CUDA_UNAVAILABLE'])\n"
    )
    output = run(
        engine,
        built,
        f'python3 -W ignore -c "{code}"',
        mounts=[Mount(workflow)],
        env={"PYTHONPATH": workflow},
    )
    assert "does not find its CUDA and cuDNN libraries" in output
    assert "its own word: 1" in output


# --- faults ---


def test_a_bogus_image_stops_with_one_sentence(engine: Engine, tmp_path: Path) -> None:
    bogus = {
        "engine": {"name": engine.name},
        "image_id": "0" * 64,
        "reference": "localhost/trainmark-cu102:bogus",
    }
    with (tmp_path / "log").open("w") as log, pytest.raises(UserError) as error:
        container.start_worker(bogus, {"runs": []}, tmp_path, ROOT / "workflow", log)
    assert str(error.value).startswith("there is no image localhost/trainmark-cu102:bogus in")


def test_a_bogus_base_stops_with_one_sentence(engine: Engine, tmp_path: Path) -> None:
    base = f"localhost/no-such-base@sha256:{'0' * 64}"
    with pytest.raises(
        UserError, match="container.base: localhost/no-such-base.*set container.base"
    ):
        image_build.build(image.Wanted(base=base), tmp_path)


# --- archives ---


def test_an_archive_can_be_used_instead_of_building(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tiny image that carries our labels, so that it costs no gigabytes."""
    context = tmp_path / "context"
    context.mkdir()
    (context / "file").write_text("x")
    labels = f"LABEL org.trainmark.lock={image.lock_hash()}\n"
    (context / "Dockerfile").write_text(f"FROM scratch\nCOPY file /\n{labels}")
    reference = f"localhost/trainmark-test:{os.getpid()}"
    log = image_build.Log(tmp_path / "log")
    build = engine_commands.build_command(engine.builder, str(context), reference, {}, {})
    log.run(build, "the tiny image could not be built")
    tiny = {"reference": reference}
    archive = image_build.save(engine, tiny, tmp_path / "tiny.tar", log)
    before = image.inspect(engine.builder, reference)
    remove = [engine.builder, "rmi", reference]
    subprocess.run(remove, capture_output=True)
    monkeypatch.setattr(image_build, "versions", lambda *_: None)
    settings = image.Wanted(image=str(archive))
    found = image_build.build(settings, tmp_path / "image")
    try:
        assert before and found["image_id"] == before["id"]
        assert found["hash"] == image.environment_hash(settings)
        assert found["base"] == str(archive)
    finally:
        subprocess.run([engine.builder, "rmi", "--force", found["image_id"]], capture_output=True)
