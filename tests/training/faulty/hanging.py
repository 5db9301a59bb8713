"""One rank sleeps for ever in its second step, with a child process of its own."""

import subprocess
import time

from trainmark_worker.strategies import ddp


class Strategy(ddp.Strategy):
    def step(self, batches, position):
        if self.rank == 1 and position.step == 1:
            subprocess.Popen(["sleep", "4321"])
            self.wait_for_ever()
        return super().step(batches, position)

    def wait_for_ever(self):
        time.sleep(3600)
