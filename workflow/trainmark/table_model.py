"""What a table file holds (JSON schema: config/schemas/table.schema.json)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainmark.record_model import Cause, Dtypes, EnvironmentUsed, Load, Machine, Number, Outcome

SCHEMA_VERSION = 1
State = Literal["measured", "missing", "stale"]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Throughput(Part):
    """Samples per second over the ok repeats."""

    mean: Number
    stddev: Number | None = Field(description="sample standard deviation (ddof 1); null if n = 1")
    values: list[Number]
    median: Number
    relative_spread: Number | None = Field(description="stddev / mean")
    interval: tuple[Number, Number] | None = Field(description="95 % of the mean, Student t")


class Parity(Part):
    """Losses of a parity run against its reference run, same steps, same data."""

    passed: bool | None = Field(description="null: its reference is not measured yet")
    max_difference: Number | None = Field(description="largest |loss - reference loss|")
    tolerance: Number
    reference: str
    reason: str | None = Field(default=None, description="why nothing could be compared")


class Losses(Part):
    first: Number
    last: Number
    smallest: Number
    steps: int
    unigram: Number | None = Field(description="what knowing only the frequencies reaches")


class RunEntry(Part):
    """One wanted run and what is known of it."""

    purpose: str
    repeat: int
    key: str
    outcome: Outcome | None
    file: str | None = Field(description="the record, below the records folder")
    samples_per_second: Number | None = None
    peak_memory_mib: Number | None = None
    wall_seconds: Number | None = None
    duration_seconds: Number | None = None
    outlier_steps: list[int] = Field(default_factory=list, description="indices of timed steps")
    timed_steps: int = 0
    drift: Number | None = Field(
        default=None, description="second half of the steps over the first, - 1"
    )
    load: Load | None = None
    foreign_cpu_percent_before: Number | None = None
    foreign_load_limit: Number | None = None
    started: str | None = None
    finished: str | None = None
    git_commit: str | None = None
    command: str | None = None
    environment: str | None = Field(default=None, description="an id of the table's `environments`")
    failed_attempts: int = 0


class Row(Part):
    id: str
    state: State
    outcome: Outcome | None
    reason: str | None = Field(description="one English sentence; null where all is well")
    n: int
    wanted_repeats: int
    adaptive: bool = Field(description="repeats: auto chose n")
    samples_per_second: Throughput | None
    peak_memory_mib: Number | None
    peak_memory_per_rank_mib: list[Number] | None
    memory_method: str | None
    calibration_seconds: Number | None = Field(
        default=None, description="fixed work on the CPU around the timed runs: the machine's speed"
    )
    parameters: int | None
    declared_parameters: int | None
    parameters_per_rank: list[int] | None
    parity: Parity | None
    parity_mixed: Parity | None
    mfu: Number | None = Field(description="model FLOPs per second / peak; null if no peak known")
    spread_exceeded: bool
    losses: Losses | None
    cause: Cause | None
    dtypes: Dtypes | None
    strategy: str
    strategy_title: str | None
    precision: Literal["fp32", "mixed"] = Field(description="as declared")
    stand_in: str | None = Field(description="why it was trained in another precision")
    unsupported: str | None
    published: bool
    spec: dict[str, Any] | None = Field(description="of the throughput runs")
    spec_digest: str | None
    stale_because: list[str] = Field(description="parts of the key that differ")
    missing_runs: list[str]
    invalid: list[str] = Field(description="files that do not count, and why")
    runs: list[RunEntry]


class EnvironmentEntry(Part):
    id: str
    environment: EnvironmentUsed
    machine: Machine
    rows: list[str]


class Table(Part):
    schema_version: Literal[1]
    table: str
    order: int
    hardware: str
    hardware_title: str
    device: str
    tried: bool
    workload: str
    baseline: str | None
    spread_limit: float
    rows: list[Row]
    environments: list[EnvironmentEntry]
