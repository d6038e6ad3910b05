"""Reads what recommendations are computed from, in the shipped work.yaml: kinds of work, figures and remarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from cloudgpu.config.desktops.desktops import day_in
from cloudgpu.config.files.user_files import data_dir
from cloudgpu.config.files.yaml import Table, read_yaml
from cloudgpu.core.advice.workloads import Figure, Figures, Note, Source, SourceQuality, WorkKind, WorkloadData
from cloudgpu.core.catalog.gpus import Workload
from cloudgpu.errors import InvalidRequest

MAX_FIGURE = 1_000_000  # above every figure in the file


@lru_cache(maxsize=1)
def shipped_workload_data() -> WorkloadData:
    """Return the data of the shipped work.yaml; raise InvalidRequest where the installation lacks it."""
    path = data_dir("policies") / "work" / "work.yaml"
    table = read_yaml(path)
    if table is None:
        raise InvalidRequest(
            "The figures for recommendations are missing.",
            field="work.yaml",
            value=str(path),
            next="Reinstall cloudgpu.",
        )
    return workload_data_from(table)


def workload_data_from(table: Table) -> WorkloadData:
    """Return the data of a work.yaml that was read; raise InvalidRequest with the line of an error."""
    keys = ("sources", "kinds", "figures", "notes")
    table.check_keys(keys, required=keys)
    sources, kinds, figures, notes = (_subtables(table, key) for key in keys)
    source_texts = {name: _source_text(subtable) for name, subtable in sources.items()}
    names = [field.name for field in fields(Figures)]
    _subtable(table, "figures").check_keys(names, required=names)
    return WorkloadData(
        kinds={name: _kind(name, subtable, source_texts) for name, subtable in kinds.items()},
        figures=Figures(**{name: _figure(figures[name], source_texts) for name in names}),
        notes={name: _note(subtable, source_texts) for name, subtable in notes.items()},
    )


SourceTexts = Mapping[str, tuple[str, date]]  # by the name of a source: its text and its date


def _subtables(table: Table, key: str) -> dict[str, Table]:
    subtable = _subtable(table, key)
    return {name: _subtable(subtable, name) for name in subtable.values}


def _subtable(table: Table, key: str) -> Table:
    """Return the table under a key, with its lines in the file."""
    value = table.values.get(key)
    if not isinstance(value, Mapping):
        raise table.error(key, "has to hold `name: value` lines", next="Write them below it, further in.")
    prefix = f"{key}."
    lines = {name.removeprefix(prefix): line for name, line in table.lines.items() if name.startswith(prefix)}
    return Table(table.path, value, lines, {})


def _source_text(table: Table) -> tuple[str, date]:
    table.check_keys(("text", "as_of"), required=("text", "as_of"))
    return table.one_line("text"), day_in(table, "as_of")


def _source(table: Table, texts: SourceTexts) -> Source:
    name, source_quality = table.one_line("source"), table.one_line("basis")
    if name not in texts:
        raise table.error("source", "is none of those above", next=f"Use one of: {', '.join(texts)}.")
    if source_quality not in list(SourceQuality):
        raise table.error("basis", "is not known", next=f"Use one of: {', '.join(SourceQuality)}.")
    return Source(*texts[name], SourceQuality(source_quality))


def _kind(name: str, table: Table, texts: SourceTexts) -> WorkKind:
    required = ("title", "speed", "source", "basis")
    table.check_keys((*required, "memory_gib", "remark"), required=required)
    workload = table.one_line("speed")
    if workload not in list(Workload):
        raise table.error("speed", "is not a kind of speed", next=f"Use one of: {', '.join(Workload)}.")
    memory_gib = Fraction(table.number("memory_gib", minimum=1, maximum=1000)) if "memory_gib" in table.values else None
    remark = table.one_line("remark")
    return WorkKind(name, table.one_line("title"), memory_gib, Workload(workload), _source(table, texts), remark)


def _figure(table: Table, texts: SourceTexts) -> Figure:
    keys = ("value", "source", "basis")
    table.check_keys(keys, required=keys)
    return Figure(Fraction(table.number("value", minimum=Decimal("0.001"), maximum=MAX_FIGURE)), _source(table, texts))


def _note(table: Table, texts: SourceTexts) -> Note:
    keys = ("says", "source", "basis")
    table.check_keys(keys, required=keys)
    return Note(table.one_line("says"), _source(table, texts))
