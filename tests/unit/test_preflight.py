"""Preflight: every mismatch is found, named with found and expected, and reported together."""

from __future__ import annotations

import json
from pathlib import Path

import nvidia_samples as samples
import pytest
from trainmark import nvidia, preflight
from trainmark.config import Requirements
from trainmark.errors import UserError
from trainmark.preflight import Answer

ROOT = Path(__file__).parents[2]
V100 = ROOT / "config" / "hardware" / "v100.yaml"
EXPECTED = preflight.read_hardware(V100).preflight


def compare(xml: str) -> tuple[list[str], list[str]]:
    mismatches, notes = nvidia.compare(nvidia.parse(xml), EXPECTED)
    return [str(m) for m in mismatches], notes


def test_the_published_machine_passes() -> None:
    mismatches, notes = compare(samples.PUBLISHED)
    assert mismatches == []
    assert notes == [f"GPU {i}: application clock 1290 MHz of 1530 MHz" for i in range(4)]


def test_a_newer_driver_is_a_note_only() -> None:
    mismatches, notes = compare(samples.NEWER_DRIVER)
    assert mismatches == []
    assert "driver 535.129.03; the published figures were measured with 440.64.00" in notes
    assert "the driver supports CUDA 12.2; the image uses 10.2" in notes
    assert "GPU 0: the driver reports 32,768 MiB" in notes


def test_an_older_driver_is_a_mismatch() -> None:
    mismatches, _ = compare(samples.OLD_DRIVER)
    assert mismatches[0] == "driver: found 418.87.01, expected 440.33 or newer"
    assert mismatches[1].startswith("CUDA: found 10.1, expected 10.2 or newer")


def test_another_card_names_count_name_and_memory() -> None:
    mismatches, _ = compare(samples.OTHER_CARD)
    assert mismatches == [
        "GPU count: found 2, expected 4",
        "GPU 0 name: found NVIDIA A10G, expected Tesla V100-SXM2-32GB",
        "GPU 0 memory: found 23,028 MiB, expected 32,510 MiB",
        "GPU 1 name: found NVIDIA A10G, expected Tesla V100-SXM2-32GB",
        "GPU 1 memory: found 23,028 MiB, expected 32,510 MiB",
    ]


def test_busy_gpus_tell_who_and_what() -> None:
    mismatches, _ = compare(samples.BUSY)
    assert mismatches == [
        "GPU 0 processes: found process 4711 python3, expected none",
        "GPU 0 memory in use: found 30,120 MiB in use, expected none",
        "GPU 0 utilisation: found 98 %, expected 0 %",
        "GPU 1 memory in use: found 812 MiB in use, expected none "
        "(no process is shown for it: look in other containers and for other users)",
        "GPU 2 utilisation: found 3 %, expected 0 %",
        "GPU 3 throttling: found hardware slowdown, hardware thermal slowdown, expected none "
        "(check cooling and power)",
    ]


def test_mig_is_named() -> None:
    mismatches, _ = compare(samples.MIG)
    assert "GPU 0 MIG: found enabled, expected disabled (nvidia-smi -i 0 -mig 0)" in mismatches


def test_a_power_limit_is_a_note() -> None:
    xml = samples.xml(*(samples.gpu(i, active=("sw_power_cap",)) for i in range(4)))
    mismatches, notes = compare(xml)
    assert mismatches == []
    assert "GPU 2: its power limit holds the clocks down" in notes


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(None, ""), "no nvidia-smi"),
        (Answer(124, ""), "no answer within 60 s"),
        (Answer(9, samples.NO_DRIVER), "no running driver"),
        (Answer(18, samples.MISMATCH), "different versions"),
        (Answer(6, samples.NO_DEVICES), "a driver without a GPU"),
        (Answer(0, samples.NO_DEVICES), "a driver without a GPU"),
        (Answer(0, "<nvidia_smi_log><gpu>"), "cannot be read"),
        (Answer(1, "something new"), "something new"),
    ],
)
def test_every_failure_of_nvidia_smi_is_one_mismatch(answer: Answer, words: str) -> None:
    found = preflight.look_at_gpus(EXPECTED, lambda command: answer)
    assert len(found.mismatches) == 1
    assert words in str(found.mismatches[0])


def machine(xml: str):
    def asker(command: list[str]) -> Answer:
        if command == ["nvidia-smi", "-q", "-x"]:
            return Answer(0, xml)
        return Answer(0, samples.TOPOLOGY if "topo" in command else samples.PUBLISHED_TABLE)

    return asker


def test_what_was_captured_is_kept() -> None:
    found = preflight.look_at_gpus(EXPECTED, machine(samples.PUBLISHED))
    assert found.machine["nvidia_smi"] == samples.PUBLISHED_TABLE.rstrip()
    assert found.machine["topology"] == samples.TOPOLOGY.rstrip()
    assert found.machine["driver"] == "440.64.00"
    assert found.machine["devices"] == ["Tesla V100-SXM2-32GB"] * 4
    assert found.machine["clocks"][0]["applications_clock_graphics_clock"] == "1290 MHz"


def test_utilisation_alone_is_asked_for_again() -> None:
    answers = [
        samples.xml(*(samples.gpu(i, utilisation="7 %") for i in range(4))),
        samples.PUBLISHED,
    ]
    asked: list[str] = []

    def asker(command: list[str]) -> Answer:
        if "-x" not in command:
            return Answer(0, "")
        asked.append(answers[len(asked)])
        return Answer(0, asked[-1])

    found = preflight.look_at_gpus(EXPECTED, asker, pause=0)
    assert len(asked) == 2
    assert found.mismatches == []


def test_a_hanging_command_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "SMI_SECONDS", 0.2)
    assert preflight.ask(["sleep", "5"]).status == 124
    assert preflight.ask(["no-such-command-here"]).status is None


# --- the host -------------------------------------------------------------------------------------


def test_memory_disk_and_shared_memory_are_reported_together() -> None:
    host = preflight.Host(2 * 2**30, 3 * 2**30, "/data", 64 * 2**20)
    wanted = Requirements(memory_gib=6, disk_gib=4, shared_memory_mib=1024)
    assert [str(m) for m in preflight.compare_host(host, wanted)] == [
        "memory: found 2.0 GiB available, expected at least 6 GiB",
        "disk: found 3.0 GiB free in /data, expected at least 4 GiB",
        "shared memory: found 64 MiB free in /dev/shm, expected at least 1,024 MiB "
        "(mount -o remount,size=1024m /dev/shm)",
    ]


def test_a_container_brings_its_own_shared_memory() -> None:
    host = preflight.Host(8 * 2**30, 8 * 2**30, "/data", None)
    assert preflight.compare_host(host, Requirements(shared_memory_mib=1024)) == []
    small = preflight.Host(2**29, 8 * 2**30, "/data", None)
    assert len(preflight.compare_host(small, Requirements(shared_memory_mib=1024))) == 1


def test_available_memory_is_read_from_meminfo() -> None:
    assert preflight.available_memory("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2 * 2**20


# --- the command ----------------------------------------------------------------------------------


def test_all_mismatches_stop_the_command_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "ask", machine(samples.BUSY))
    out = tmp_path / "v100.json"
    arguments = ["--hardware", str(V100), "--out", str(out)]
    with pytest.raises(UserError) as error:
        preflight.main(arguments)
    assert str(error.value).count("GPU") >= 6
    assert "allow_mismatch=true" in str(error.value)
    assert not out.exists()
    assert preflight.main([*arguments, "--allow-mismatch"]) == 0
    written = json.loads(out.read_text())
    assert written["allow_mismatch"] is True
    assert written["passed"] is False
    assert written["mismatches"][0]["found"] == "process 4711 python3"
    assert "mismatch, allowed: GPU 0" in capsys.readouterr().out


def test_a_cpu_profile_needs_no_gpu(tmp_path: Path) -> None:
    out = tmp_path / "cpu.json"
    assert preflight.main(["--hardware", str(ROOT / "config/hardware/cpu.yaml"), "--out", str(out),
                           "--allow-mismatch"]) == 0  # fmt: skip
    written = json.loads(out.read_text())
    assert "Architecture" in written["machine"]["lscpu"]
    assert written["machine"]["host"]["disk"] > 0
