"""How fast the machine's CPU is right now: a fixed piece of work, timed on every core at once.

A shared or virtual machine slows down and speeds up over minutes, without any load that it shows.
Repeats within a minute do not see that; rows measured minutes apart differ by it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import statistics
import struct
import time
from typing import List, Tuple

TRIES = 3
HASHED_BYTES = 2**22
HASHES, MAPPINGS, COPIES = 6, 16, 8  # about equal times: arithmetic, page faults, memory


def calibrate() -> float:
    """Median over tries of the seconds that the slowest core needs; about a quarter of a second."""
    return statistics.median(max(_on_every_core()) for _ in range(TRIES))


def _on_every_core() -> List[float]:
    """Seconds per core, timed within processes of their own."""
    children = [_start() for _ in os.sched_getaffinity(0)]
    seconds = []
    for pid, reader in children:
        with open(reader, "rb") as result:
            seconds.append(struct.unpack("d", result.read())[0])
        os.waitpid(pid, 0)
    return seconds


def _start() -> Tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, struct.pack("d", _work()))
        finally:
            os._exit(0)
    os.close(writer)
    return pid, reader


def _work() -> float:
    content = bytes(HASHED_BYTES)
    begin = time.perf_counter()
    for _ in range(HASHES):
        hashlib.blake2b(content).digest()
    for _ in range(MAPPINGS):
        with mmap.mmap(-1, HASHED_BYTES) as memory:
            for page in range(0, HASHED_BYTES, mmap.PAGESIZE):
                memory[page] = 1
    for _ in range(COPIES):
        bytearray(content)
    return time.perf_counter() - begin
