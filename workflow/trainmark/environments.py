"""The environments and machines of a set of tables, and in what they differ."""

from __future__ import annotations

import json
from collections.abc import Iterator

from trainmark.page_model import Difference
from trainmark.table_model import EnvironmentEntry, Row, RunEntry, Table


def merged(tables: list[Table]) -> list[EnvironmentEntry]:
    """The distinct environments of all tables; rows are named table/row."""
    found: dict[str, EnvironmentEntry] = {}
    for table in tables:
        for entry in table.environments:
            rows = [f"{table.table}/{row}" for row in entry.rows]
            if entry.id in found:
                found[entry.id].rows += rows
            else:
                found[entry.id] = entry.model_copy(update={"rows": rows})
    return list(found.values())


def differences(tables: list[Table]) -> Iterator[Difference]:
    """Everything that is not the same in all records: packages, machine, commit."""
    where: dict[str, dict[str, list[str]]] = {}
    for entry in merged(tables):
        for name, value in _properties(entry):
            where.setdefault(name, {}).setdefault(value, []).extend(entry.rows)
    for table, row, run in _runs(tables):
        rows = where.setdefault("git commit", {}).setdefault(run.git_commit or "—", [])
        if (name := f"{table.table}/{row.id}") not in rows:
            rows.append(name)
    for name, values in where.items():
        if len(values) > 1:
            yield Difference(name=name, values=values)


def _runs(tables: list[Table]) -> Iterator[tuple[Table, Row, RunEntry]]:
    for table in tables:
        for row in table.rows:
            for run in row.runs:
                if run.outcome:
                    yield table, row, run


# Machine properties that differ from rank layout to rank layout, not from machine to machine.
_OF_A_RUN = {"devices", "topology", "clocks", "nvidia_smi"}


def _properties(entry: EnvironmentEntry) -> Iterator[tuple[str, str]]:
    environment = entry.environment.model_dump()
    packages = environment.pop("packages")
    for name, value in packages.items():
        if value is not None:
            yield name, str(value)
    for name, value in {**environment, **entry.machine.model_dump()}.items():
        if name not in _OF_A_RUN:
            text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            yield name, "—" if value is None else text
    yield "devices", ", ".join(sorted(set(entry.machine.devices))) or "—"
