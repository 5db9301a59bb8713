"""What the whole page shows, without words: page.json (config/schemas/page.schema.json)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainmark.notes import Note
from trainmark.published_model import Published
from trainmark.record_model import Number
from trainmark.table_model import EnvironmentEntry, Table

SCHEMA_VERSION = 1


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Change(Part):
    """A row against another: relative change and, where repeats allow one, its 95 % interval."""

    row: str
    over: str
    change: Number
    low: Number | None = None
    high: Number | None = None
    n: tuple[int, int]
    method: str | None = None
    machine_change: Number | None = Field(
        default=None, description="of the machine's own speed meanwhile; it widens the interval"
    )
    why_no_interval: Literal["single", "constant"] | None = None


class Throughput(Part):
    """The throughput of a row against the baseline."""

    kind: Literal["throughput"] = "throughput"
    change: Change
    memory_change: Number | None = None


class Unmeasured(Part):
    """A comparison that cannot be made."""

    kind: Literal["unmeasured"] = "unmeasured"
    row: str
    over: str
    lacking: list[str]


class Fastest(Part):
    kind: Literal["fastest"] = "fastest"
    row: str
    samples_per_second: Number
    against_baseline: Change | None
    runner_up: Change | None = Field(description="the fastest row against the next one")
    memory_change: Number | None


class Smallest(Part):
    kind: Literal["smallest"] = "smallest"
    row: str
    peak_memory_mib: Number
    baseline: str | None
    memory_change: Number | None
    against_baseline: Change | None = Field(description="its throughput")


class Frontier(Part):
    """Rows that no other row beats in both throughput and memory, by memory."""

    kind: Literal["frontier"] = "frontier"
    rows: list[str]
    of: int


class OutOfMemory(Part):
    kind: Literal["oom"] = "oom"
    rows: list[str]
    limit_mib: Number | None


class Failed(Part):
    kind: Literal["failed"] = "failed"
    rows: list[str]


class NotMeasured(Part):
    kind: Literal["not_measured"] = "not_measured"
    rows: list[str]
    of: int


class SameSpec(Part):
    """Two rows with the same specification: an A/A comparison."""

    kind: Literal["same_spec"] = "same_spec"
    other_table: str
    other_row: str
    change: Change


Finding = Annotated[
    Throughput
    | Unmeasured
    | Fastest
    | Smallest
    | Frontier
    | OutOfMemory
    | Failed
    | NotMeasured
    | SameSpec,
    Field(discriminator="kind"),
]


class Comparison(Part):
    """A row of ours beside the published one, both as ratios to the table's baseline."""

    row: str
    our_throughput: Number | None
    published_throughput: Number | None
    our_memory: Number | None
    published_memory: Number | None
    deviation: Number | None = Field(
        default=None, description="ours / published - 1, same hardware only"
    )
    deviations: Number | None = Field(default=None, description="the same in published +/- values")
    memory_deviation: Number | None = None


class PageTable(Part):
    table: Table
    baseline: str | None = Field(description="the row that ratios refer to; null if not measured")
    findings: list[Finding]
    comparisons: list[Comparison]
    comparison_baseline: str | None
    same_hardware: bool = Field(description="hardware and size are those of the published page")
    notes: list[Note]


class Difference(Part):
    """A property in which the environments of the records differ."""

    name: str
    values: dict[str, list[str]] = Field(description="value -> table/row")


class MachinePage(Part):
    """One record set: one hardware profile, one machine."""

    id: str
    hardware: str
    title: str
    device: str
    tried: bool
    ranks: list[int]
    scaled_down: bool
    tables: list[PageTable]
    environments: list[EnvironmentEntry]
    differences: list[Difference]
    started: str | None
    finished: str | None
    busy_seconds: Number
    runs: int
    commits: list[str]
    load_before: tuple[Number, Number] | None = Field(description="1 min load average, min and max")
    foreign_cpu_percent: tuple[Number, Number] | None
    calibration_seconds: tuple[Number, Number] | None = None
    missing: list[str] = Field(description="table/row, not or not completely measured")
    failed: list[str]


class DraftReason(Part):
    """A file of a record set that is not as it was archived."""

    kind: Literal["missing", "tampered", "foreign"]
    set: str
    file: str


class Page(Part):
    """The whole page."""

    schema_version: Literal[1]
    draft: bool
    draft_reasons: list[DraftReason]
    languages: list[str]
    published: Published | None
    machines: list[MachinePage]
