"""The published figures: config/published/<name>.yaml, as printed on the published page."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainmark.config import read_yaml
from trainmark.errors import UserError


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Settings(Part):
    layers: int
    hidden: int
    heads: int
    parameters: int = Field(description="as printed")
    ranks: int
    sequence_length: int
    micro_batch: int
    global_batch: int
    vocabulary: int = Field(description="not printed: of the named model")


class PublishedRow(Part):
    strategy: str
    precision: Literal["fp32", "mixed"]
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    samples_per_second: float | None = None
    plus_minus: float | None = Field(
        default=None, description="what follows +/-; its kind is not told"
    )
    peak_memory_mib: float | None = None
    outcome: Literal["ok", "oom", "not_available"] = "ok"
    message: str | None = None


class Speedup(Part):
    row: str
    over: str
    percent: float


class Claims(Part):
    """What the text of the page says beside its tables."""

    adam_state_gb: float | None = None
    speedup: Speedup | None = None


class PublishedTable(Part):
    workload: str
    settings: Settings
    claims: Claims = Field(default_factory=Claims)
    rows: dict[str, PublishedRow]


class PublishedEnvironment(Part):
    instance: str | None = None
    cpu_cores: int | None = None
    memory_gib: float | None = None
    gpus: int
    gpu: str
    gpu_memory_mib: int | None = None
    driver: str | None = None
    cuda: str | None = None
    system: str | None = None
    image: str | None = None
    bandwidth: str | None = None


class Published(Part):
    """One published page."""

    id: str
    publisher: str
    title: dict[str, str]
    url: dict[str, str]
    last_updated: str
    environment: PublishedEnvironment
    peak_tflops: dict[Literal["fp32", "mixed"], float]
    tables: dict[str, PublishedTable]


def load(path: Path) -> Published:
    """Read the published figures. Raises UserError with every fault."""
    try:
        return Published.model_validate(read_yaml(path))
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise UserError("\n  ".join([f"{path}: has faults:", *faults])) from None
