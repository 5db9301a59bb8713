"""What a record holds (JSON schema: config/schemas/record.schema.json). Others are allowed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Outcome = Literal["ok", "oom", "unsupported", "error", "timeout"]
Purpose = Literal["throughput", "memory", "parity", "parity_mixed"]


class Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class Cause(Part):
    """Why a run is not ok."""

    type: str | None = None
    message: str | None = None
    traceback: str | None = Field(default=None, description="excerpt, as captured")
    rank: int | None = None
    phase: str | None = None
    step: int | None = None
    micro_batch_index: int | None = None
    exit_code: int | None = None
    signal: int | str | None = None


class Metrics(Part):
    step_seconds: list[Number] = Field(description="timed steps, slowest rank")
    wall_seconds: Number = Field(description="between barriers, slowest rank")
    samples_per_second: Number | None = Field(description="global batch x timed steps / wall")
    losses: list[Number] = Field(description="every step, warm-up included")
    flops_per_second: Number | None = Field(default=None, description="model FLOPs over all ranks")


class Parameters(Part):
    model: Count = Field(description="counted on the real model, every parameter once")
    per_rank: list[Count]


class Dtypes(Part):
    compute: str | None = None
    products: str | None = Field(
        default=None, description="what a stand-in multiplied matrices of `compute` in"
    )
    weights: str | None = None
    optimizer: str | None = None
    gradient_reduction: str | None = None
    note: str | None = None


class Memory(Part):
    method: str
    peak_allocated_bytes: list[Count] = Field(min_length=1, description="per rank")
    steady_bytes: list[Count] | None = Field(default=None, description="alive after the last step")
    peak_reserved_bytes: list[Count] | None = None


class DataUsed(Part):
    key: str
    unigram_loss: Number | None = None
    manifest_sha256: str | None = None


class EnvironmentUsed(Part):
    name: str
    hash: str
    image_digest: str | None = None
    python: str | None = None
    packages: dict[str, str | None] = Field(default_factory=dict)


class Machine(Part):
    cpu_model: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    kernel: str | None = None
    devices: list[str] = Field(default_factory=list)
    driver: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    nvidia_smi: str | None = None
    topology: str | None = None
    clocks: Any = None


class Load(Part):
    before: list[Number] | None = None
    after: list[Number] | None = None
    foreign_cpu_percent: Number | None = Field(
        default=None, description="CPU use of other processes during the run"
    )
    calibration_seconds: list[Number] | None = Field(
        default=None, description="fixed work on every core, right before and after a timed run"
    )
    foreign_gpu_memory_mib: Number | None = Field(
        default=None, description="most on a GPU right before and right after the run"
    )


class Record(Part):
    """One run: its spec, its outcome and everything measured."""

    schema_version: Literal[1]
    table: str
    row: str
    hardware: str
    purpose: Purpose
    repeat: Annotated[int, Field(ge=1)]
    key: str
    key_parts: dict[str, str]
    spec: dict[str, Any]
    outcome: Outcome
    cause: Cause | None = None
    metrics: Metrics | None = None
    parameters: Parameters | None = None
    dtypes: Dtypes | None = None
    memory: Memory | None = None
    data: DataUsed | None = None
    environment: EnvironmentUsed
    machine: Machine
    load: Load | None = None
    foreign_cpu_percent_before: Number | None = None
    foreign_load_limit: Number | None = Field(
        default=None, description="% of the CPU above which the run is marked"
    )
    started: str
    finished: str | None = None
    duration_seconds: Number | None = None
    git_commit: str | None = None
    command: str | None = None
