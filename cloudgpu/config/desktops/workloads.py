"""Reads what recommendations reckon with: kinds of work, figures and remarks, from the shipped work.yaml."""

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
from cloudgpu.core.advice.workloads import Figure, Figures, Kind, Note, Rules, Source, SourceQuality
from cloudgpu.core.catalog.gpus import Workload
from cloudgpu.errors import InvalidRequest

MAX = 1_000_000  # larger than every figure here


@lru_cache(maxsize=1)
def shipped_rules() -> Rules:
    """Return what cloudgpu ships; raise InvalidRequest where the installation lacks it."""
    path = data_dir("policies") / "work" / "work.yaml"
    table = read_yaml(path)
    if table is None:
        raise InvalidRequest(
            "The figures for recommendations are missing.",
            field="work.yaml",
            value=str(path),
            next="Reinstall cloudgpu.",
        )
    return rules_from(table)


def rules_from(table: Table) -> Rules:
    """Return the rules that a file's table holds; raise InvalidRequest with the line of a fault."""
    keys = ("sources", "kinds", "figures", "notes")
    table.check_keys(keys, required=keys)
    sources, kinds, figures, notes = (_tables(table, key) for key in keys)
    known = {name: _text_of(one) for name, one in sources.items()}
    names = [field.name for field in fields(Figures)]
    _inner(table, "figures").check_keys(names, required=names)
    return Rules(
        kinds={name: _kind(name, one, known) for name, one in kinds.items()},
        figures=Figures(**{name: _figure(figures[name], known) for name in names}),
        notes={name: _note(one, known) for name, one in notes.items()},
    )


Texts = Mapping[str, tuple[str, date]]


def _tables(table: Table, key: str) -> dict[str, Table]:
    inside = _inner(table, key)
    return {name: _inner(inside, name) for name in inside.values}


def _inner(table: Table, key: str) -> Table:
    """Return the table under a key, with the lines that it has in the file."""
    value = table.values.get(key)
    if not isinstance(value, Mapping):
        raise table.fault(key, "has to hold `name: value` lines", next="Write them below it, further in.")
    begin = f"{key}."
    lines = {name.removeprefix(begin): line for name, line in table.lines.items() if name.startswith(begin)}
    return Table(table.path, value, lines, {})


def _text_of(table: Table) -> tuple[str, date]:
    table.check_keys(("text", "as_of"), required=("text", "as_of"))
    return table.line("text"), day_in(table, "as_of")


def _source(table: Table, texts: Texts) -> Source:
    name, basis = table.line("source"), table.line("basis")
    if name not in texts:
        raise table.fault("source", "is none of those above", next=f"Use one of: {', '.join(texts)}.")
    if basis not in list(SourceQuality):
        raise table.fault("basis", "is none", next=f"Use one of: {', '.join(SourceQuality)}.")
    return Source(*texts[name], SourceQuality(basis))


def _kind(name: str, table: Table, texts: Texts) -> Kind:
    needed = ("title", "speed", "source", "basis")
    table.check_keys((*needed, "memory_gib", "remark"), required=needed)
    if table.line("speed") not in list(Workload):
        raise table.fault("speed", "is none", next=f"Use one of: {', '.join(Workload)}.")
    gib = Fraction(table.number("memory_gib", least=1, most=1000)) if "memory_gib" in table.values else None
    remark = table.line("remark")
    return Kind(name, table.line("title"), gib, Workload(table.line("speed")), _source(table, texts), remark)


def _figure(table: Table, texts: Texts) -> Figure:
    keys = ("value", "source", "basis")
    table.check_keys(keys, required=keys)
    return Figure(Fraction(table.number("value", least=Decimal("0.001"), most=MAX)), _source(table, texts))


def _note(table: Table, texts: Texts) -> Note:
    keys = ("says", "source", "basis")
    table.check_keys(keys, required=keys)
    return Note(table.line("says"), _source(table, texts))
