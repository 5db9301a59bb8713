"""The configuration: what may be written in config/*.yaml, read, validated and told about in words.

Every fault of every file is collected and reported together, each with the file, the key, what was
found and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from trainmark.errors import UserError

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Workload = Literal["bert-pretraining", "gpt-pretraining", "bert-finetuning"]
Precision = Literal["fp32", "mixed"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


# --- config/config.yaml -------------------------------------------------------------------------


class Data(Strict):
    corpus: str | None = Field(
        None, description="a text file, a folder of .txt files or a URL; null generates a corpus"
    )
    sha256: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="needed for a URL, checked for a file"
    )


class Container(Strict):
    engine: Literal["auto", "docker", "podman", "buildah", "apptainer"] = Field(
        "auto", description="what builds and runs the image; auto takes the first that works"
    )
    base: str = Field(
        "auto",
        description="base image: a reference by digest, 'packages' (Debian bullseye made with "
        "mmdebstrap), or 'auto' (packages where mmdebstrap is installed, else the public image)",
    )
    image: str | None = Field(
        None, description="use this ready image (reference by digest, or an OCI archive)"
    )


class Settings(Strict):
    """config/config.yaml and `--config key=value`: the few knobs of a run."""

    hardware: Name = Field("cpu", description="a file in config/hardware/")
    repeats: Annotated[int, Field(ge=1, le=100)] | Literal["auto"] = Field(
        3, description="throughput runs per row; auto adds some until the interval is narrow"
    )
    max_repeats: Annotated[int, Field(ge=2, le=100)] = Field(
        10, description="the bound of repeats: auto"
    )
    interval_limit: float = Field(
        0.02, gt=0, description="repeats: auto stops at this half-width of the 95 % interval"
    )
    measure: Literal["missing", "never", "again"] = Field(
        "missing", description="what to measure: what has no record, nothing, or everything"
    )
    records: str | list[str] | None = Field(
        None, description="record set(s) to rebuild the page from, with measure: never"
    )
    name: Name | None = Field(None, description="the name of a new record set (target archive)")
    languages: list[Name] = Field(["ja", "en"], min_length=1, description="pages to render")
    published: Name | None = Field("alibaba-pai", description="a file in config/published/")
    yes: bool = Field(False, description="clean_records removes what it lists")
    draft: bool = Field(False, description="render incomplete data, stamped as a draft")
    allow_mismatch: bool = Field(False, description="measure although preflight found mismatches")
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        1, description="more tries of a run that ended in error (never of oom or unsupported)"
    )
    spread_limit: float = Field(
        0.10, gt=0, description="relative standard deviation above which a row is marked"
    )
    foreign_load_limit: float = Field(
        25.0, gt=0, description="CPU use by others, in % of the machine, above which runs wait"
    )
    foreign_load_wait_seconds: NonNegative = Field(
        60, description="how long to wait for a quiet machine before measuring all the same"
    )
    data: Data = Field(default_factory=lambda: Data())
    container: Container = Field(default_factory=lambda: Container())


# --- config/hardware/<name>.yaml ----------------------------------------------------------------


class Size(Strict):
    """One workload's size on one machine (or the parity size, shared by all machines)."""

    layers: Positive
    hidden: Positive = Field(description="hidden size; the feed-forward size is four times it")
    heads: Positive
    vocabulary: Positive
    sequence_length: Positive
    dropout: float = Field(0.0, ge=0, lt=1)
    micro_batch: Positive = Field(description="samples per forward pass and rank")
    global_batch: Positive = Field(description="samples per optimizer step over all ranks")
    warmup_steps: NonNegative = 0
    timed_steps: Positive
    learning_rate: float = Field(gt=0)
    optimizer: Literal["adamw", "sgd"] = "adamw"
    gradient_clipping: float = Field(1.0, ge=0, description="0 switches clipping off")
    samples: Positive = Field(description="samples of prepared data; steps wrap around them")
    attention: Literal["eager", "sdpa"] = "sdpa"
    activation_checkpointing: bool = False
    memory_limit_mib: Positive | None = Field(
        None, description="allocation limit per rank, enforced by the system; null: the device's"
    )

    @model_validator(mode="after")
    def _heads_divide(self) -> Size:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not divisible by heads {self.heads}")
        return self


class StandIn(Strict):
    """A precision that this machine cannot compute for some rows, and what replaces it."""

    strategy: Name
    minimum_tensor_parallel: Positive = 1
    precision: Precision
    reason: str


class Requirements(Strict):
    """What preflight must find on the machine."""

    gpus: NonNegative = 0
    gpu_name: str | None = None
    gpu_memory_mib: Positive | None = None
    minimum_driver: str | None = None
    published_driver: str | None = None
    cuda: str | None = None
    shared_memory_mib: NonNegative = 0
    memory_gib: NonNegative = 0
    disk_gib: NonNegative = 0


class Hardware(Strict):
    """config/hardware/<name>.yaml: one machine, its software line and the size of each workload."""

    title: str
    device: Literal["cpu", "cuda"]
    devices_per_node: Positive = Field(description="ranks of a row, one per GPU or CPU rank")
    oversubscribe: bool = Field(
        False, description="may a layout use more ranks than devices_per_node (CPU only)"
    )
    threads_per_rank: Positive = 1
    line: Literal["modern", "cu102"]
    launcher: Literal["fork", "torchrun"]
    mixed_dtype: Literal["bfloat16", "float16"]
    time_limit_seconds: Positive = Field(description="per run; then its outcome is timeout")
    peak_tflops: dict[str, float] = Field(
        default_factory=dict, description="peak per device by dtype, for MFU; empty if unknown"
    )
    peak_source: str | None = None
    tried: bool = Field(True, description="false: not yet run on this hardware; the page says so")
    stand_ins: list[StandIn] = Field(default_factory=list)
    preflight: Requirements = Field(default_factory=lambda: Requirements())
    workloads: dict[Workload, Size]


# --- config/tables.yaml -------------------------------------------------------------------------


class Training(Strict):
    """How a row (or a parity reference) trains."""

    id: Name
    strategy: Name
    precision: Precision
    tensor_parallel: Positive = 1
    pipeline_parallel: Positive = 1
    activation_checkpointing: bool | None = Field(
        None, description="overrides the hardware profile's choice for this row"
    )


class Row(Training):
    published: bool = Field(True, description="false: a row of ours, not on the published page")
    parity_reference: Name | None = Field(None, description="overrides the table's reference")


class Reference(Training):
    workload: Workload
    ranks: Positive | None = Field(None, description="null: as many as the machine's devices")


class Table(Strict):
    id: Name
    workload: Workload
    baseline: Name = Field(description="the row that ratios and sentences refer to")
    parity_reference: Name
    rows: list[Row] = Field(min_length=1)


class Tables(Strict):
    """config/tables.yaml: what is measured."""

    seed: NonNegative = 1234
    parity: dict[Workload, Size]
    references: list[Reference]
    tables: list[Table] = Field(min_length=1)


# --- reading ------------------------------------------------------------------------------------


class Config(BaseModel):
    """The whole validated configuration."""

    model_config = ConfigDict(frozen=True)
    settings: Settings
    hardware: Hardware
    tables: Tables


def read_yaml(path: Path) -> Any:
    """YAML 1.2 (so that `NO` is text and `1e-4` a number). Raises UserError with the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file{_neighbours(path)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    try:
        value = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise UserError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        found = "an empty file" if value is None else type(value).__name__
        raise UserError(f"{path}: found {found}, expected keys and values")
    return value


def _neighbours(path: Path) -> str:
    names = sorted(other.stem for other in path.parent.glob("*.yaml"))
    return f"; {path.parent} has: {', '.join(names)}" if names else ""


def _parse(model: type[BaseModel], path: str, value: dict[str, Any], faults: list[str]) -> Any:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults.extend(f"{path}: {_describe(detail)}" for detail in error.errors())
        return None


def _describe(detail: Any) -> str:
    key = ".".join(str(part) for part in detail["loc"] if not str(part).startswith("function"))
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if detail["type"] == "extra_forbidden":
        return f"{key}: is not a known key"
    if detail["type"] == "missing":
        return f"{key}: is missing"
    if isinstance(detail["input"], dict):
        return f"{key}: {message}" if key else message
    found = detail["input"]
    kind = {str: "text", bool: "true/false", int: "number", float: "number"}.get(type(found), "")
    return f"{key}: found {found!r}{f' ({kind})' if kind else ''}; {message}"


def load(root: Path, overrides: dict[str, Any] | None = None) -> Config:
    """Read and validate config/ below `root`, with `--config` overrides on top of config.yaml."""
    faults: list[str] = []
    settings_path = root / "config" / "config.yaml"
    values = _merge(read_yaml(settings_path), _typed(overrides or {}))
    settings: Settings | None = _parse(Settings, "config/config.yaml or --config", values, faults)
    tables: Tables | None = _read(root, "config/tables.yaml", Tables, faults)
    name = settings.hardware if settings else values.get("hardware", "cpu")
    hardware: Hardware | None = _read(root, f"config/hardware/{name}.yaml", Hardware, faults)
    if tables and hardware:
        faults.extend(_layout_faults(tables, hardware, f"config/hardware/{name}.yaml", root))
    if settings:
        faults.extend(_settings_faults(settings, root))
    if faults or settings is None or tables is None or hardware is None:
        raise UserError("\n  ".join(["the configuration has faults:", *faults]))
    return Config(settings=settings, hardware=hardware, tables=tables)


def _read(root: Path, name: str, model: type[BaseModel], faults: list[str]) -> Any:
    try:
        return _parse(model, name, read_yaml(root / name), faults)
    except UserError as error:
        faults.append(str(error).replace(f"{root}/", ""))
        return None


def _typed(overrides: dict[str, Any]) -> dict[str, Any]:
    """Snakemake hands over `--config draft=true` as a text; here it means what it means in YAML."""
    words = {"true": True, "false": False, "null": None}
    return {
        key: words.get(value, value) if isinstance(value, str) else value
        for key, value in overrides.items()
    }


def _merge(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in overrides.items():
        old = merged.get(key)
        merged[key] = (
            {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return merged


def _settings_faults(settings: Settings, root: Path) -> Iterator[str]:
    where = "config/config.yaml or --config"
    if settings.published and not (root / f"config/published/{settings.published}.yaml").is_file():
        known = sorted(p.stem for p in (root / "config/published").glob("*.yaml"))
        yield f"{where}: published: found {settings.published!r}; config/published has {known}"
    if settings.records is not None and settings.measure != "never":
        yield f"{where}: records: a record set is only read with measure=never"
    sets = [settings.records] if isinstance(settings.records, str) else settings.records or []
    for name in sets:
        if not (root / name).is_dir():
            kept = sorted(str(p.relative_to(root)) for p in (root / "records").glob("*/"))
            yield f"{where}: records: {name} is no folder; there are {', '.join(kept) or 'none'}"
    if (settings.data.corpus or "").startswith(
        ("http://", "https://")
    ) and not settings.data.sha256:
        yield f"{where}: data.sha256: is missing; a corpus from a URL is checked before it is used"


# --- rules on layouts -----------------------------------------------------------------------------


def ranks_of(training: Training, hardware: Hardware) -> int:
    """World size of a row: the machine's devices, or TP x PP where a layout needs more."""
    if isinstance(training, Reference) and training.ranks:
        return training.ranks
    return max(hardware.devices_per_node, training.tensor_parallel * training.pipeline_parallel)


def unsupported_reason(training: Training, hardware: Hardware) -> str | None:
    """Why a layout cannot exist on this machine, or None."""
    needed = training.tensor_parallel * training.pipeline_parallel
    if needed > hardware.devices_per_node and not hardware.oversubscribe:
        return (
            f"TP {training.tensor_parallel} x PP {training.pipeline_parallel} needs {needed} ranks; "
            f"one machine of this profile has {hardware.devices_per_node}"
        )
    return None


def _layout_faults(tables: Tables, hardware: Hardware, where: str, root: Path) -> Iterator[str]:
    strategies = strategy_names(root)
    seen: set[str] = set()
    references = {reference.id for reference in tables.references}
    for table in tables.tables:
        if table.id in seen or table.id == "reference":
            yield f"config/tables.yaml: tables: the id {table.id!r} is used twice"
        seen.add(table.id)
        yield from _table_faults(table, references)
        for row in table.rows:
            name = f"config/tables.yaml: row {table.id}/{row.id}"
            if row.strategy not in strategies:
                yield f"{name}: strategy: found {row.strategy!r}; known are {', '.join(strategies)}"
            size = hardware.workloads.get(table.workload)
            if size is None:
                yield f"{where}: workloads.{table.workload}: is missing; {table.id} needs it"
                continue
            if unsupported_reason(row, hardware):
                continue
            ranks = ranks_of(row, hardware)
            yield from _size_faults(f"{where} and {name.split(': ')[1]}", row, size, ranks)
            if parity := tables.parity.get(table.workload):
                yield from _size_faults(f"{name} at the parity size", row, parity, ranks)
    for workload in {table.workload for table in tables.tables} - set(tables.parity):
        yield f"config/tables.yaml: parity.{workload}: is missing"


def _table_faults(table: Table, references: set[str]) -> Iterator[str]:
    ids = [row.id for row in table.rows]
    for duplicate in sorted({name for name in ids if ids.count(name) > 1}):
        yield f"config/tables.yaml: tables.{table.id}: the row id {duplicate!r} is used twice"
    if table.baseline not in ids:
        yield (
            f"config/tables.yaml: tables.{table.id}.baseline: found {table.baseline!r}; "
            f"its rows are {', '.join(ids)}"
        )
    wanted = {table.parity_reference, *(row.parity_reference for row in table.rows)} - {None}
    for name in sorted(str(name) for name in wanted - references):
        yield (
            f"config/tables.yaml: tables.{table.id}: parity_reference {name!r} is not among "
            f"the references ({', '.join(sorted(references))})"
        )


def _size_faults(where: str, row: Training, size: Size, ranks: int) -> Iterator[str]:
    tensor, pipeline = row.tensor_parallel, row.pipeline_parallel
    if ranks % (tensor * pipeline):
        yield f"{where}: TP {tensor} x PP {pipeline} = {tensor * pipeline} must divide {ranks} ranks"
        return
    if size.heads % tensor:
        yield f"{where}: TP {tensor} must divide the {size.heads} attention heads"
    if size.vocabulary % tensor:
        yield f"{where}: TP {tensor} must divide the vocabulary of {size.vocabulary}"
    if size.layers % pipeline:
        yield f"{where}: PP {pipeline} must divide the {size.layers} layers"
    data_parallel = ranks // (tensor * pipeline)
    if size.global_batch % (size.micro_batch * data_parallel):
        yield (
            f"{where}: global batch {size.global_batch} must be a multiple of micro batch "
            f"{size.micro_batch} x {data_parallel} data-parallel ranks"
        )


def strategy_names(root: Path) -> list[str]:
    """The strategies that exist: one file each in trainmark_worker/strategies/."""
    folder = root / "workflow" / "trainmark_worker" / "strategies"
    return sorted(p.stem for p in folder.glob("[a-z]*.py") if p.stem != "base")
