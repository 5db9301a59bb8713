"""DDP whose memory is measured as that of a framework with its own allocator."""

from trainmark_worker.strategies import ddp


class Strategy(ddp.Strategy):
    allocates_outside_torch = True
