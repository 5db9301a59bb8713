"""How to read the numbers: the terms that the page explains."""

from __future__ import annotations

from trainmark.catalogues import N_

READING = (
    (
        N_("Throughput"),
        N_(
            "Samples per second: global batch × timed steps ÷ wall time, measured between barriers "
            "on the slowest rank. Warm-up steps do not count."
        ),
    ),
    (
        N_("± and n"),
        N_(
            "Sample standard deviation (n − 1 in the denominator) over n runs, each in a fresh "
            "process group. With one run there is none, shown as —."
        ),
    ),
    (
        N_("Interval"),
        N_(
            "95% confidence interval of the ratio of two rows: Welch's t interval on the "
            "logarithms of their throughputs. If it contains 0%, the difference is not clear."
        ),
    ),
    (
        N_("Peak memory"),
        N_(
            "The largest amount of tensor memory allocated on any rank, in MiB, measured in a run "
            "of its own. Memory that an allocator only reserves does not count."
        ),
    ),
    (
        N_("Parity"),
        N_(
            "A short run with the same initial weights and the same data must have the losses of a "
            "plain reference run. A row that fails trains something else, and its throughput means "
            "nothing."
        ),
    ),
    (
        N_("OOM"),
        N_("The allocator refused memory. The captured traceback is kept with the row."),
    ),
    (
        N_("Frontier"),
        N_(
            "The rows that no other row beats in both throughput and memory. Choose among these, "
            "by the memory that you have."
        ),
    ),
)
