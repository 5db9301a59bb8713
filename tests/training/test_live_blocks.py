"""The running peak of allocations, with releases that nobody saw."""

from __future__ import annotations

import random

from worker import Worker


def test_live_blocks(launch: Worker):
    code = f"""
import random
from trainmark_worker.memory import LiveBlocks
blocks = LiveBlocks()
for address, size in ((0, 100), (200, 50), (0, -100), (100, 30)):
    blocks.event(address, size)
assert (blocks.now, blocks.peak) == (80, 150)
blocks.event(190, 20)  # overlaps the block at 200, whose release was not seen
assert (blocks.now, blocks.peak) == (50, 150)
blocks.event(999, -10)  # was there before
assert blocks.now == 50
random.seed({random.Random(0).random()})
blocks, cells = LiveBlocks(), dict()
for _ in range(2000):
    address, size = random.randrange(500), random.randrange(1, 40)
    blocks.event(address, size)
    owners = {{cells[c] for c in range(address, address + size) if c in cells}}
    cells = {{c: o for c, o in cells.items() if o not in owners}}
    cells.update(dict.fromkeys(range(address, address + size), (address, _)))
    assert blocks.now == len(cells)
"""
    done = launch.script(code)
    assert done.returncode == 0, done.stderr[-1500:]
