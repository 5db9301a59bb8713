"""One rank raises; the others wait for it in a collective."""

from trainmark_worker.strategies import ddp


class Strategy(ddp.Strategy):
    def update(self):
        if self.rank == 2:
            raise ValueError("the fault of rank 2")
        super().update()
