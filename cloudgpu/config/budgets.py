"""Reads budgets from files: one YAML file for each in policies/budgets; the file's name is the budget's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from cloudgpu.config.files.user_files import shown, zone_of
from cloudgpu.config.files.yaml import Table, read_yaml
from cloudgpu.config.money.currencies import typed_rate
from cloudgpu.core.budgets import parsing
from cloudgpu.core.budgets.budget import Budget, Scope
from cloudgpu.core.values.naming import NAME, NAME_RULE
from cloudgpu.core.values.units import QuotedAmount
from cloudgpu.errors import InvalidRequest

KEYS = (
    "description amount currency rate rate_as_of rate_source period scope thresholds forecast action tz allow_override"
).split()
_RATE_KEYS = ("rate", "rate_as_of")


def load_budgets(search: Sequence[Path]) -> tuple[Budget, ...]:
    """Return the budgets of every `*.yaml` and `*.yml` in these directories, sorted by name; `file` is each one's path.

    Hidden files are none. Raises InvalidRequest, with file and line, for the first error, for a directory that cannot
    be listed, and for a name that two files have: which of them counts is not to be guessed.
    """
    files = sorted(file for directory in search for file in _files_in(directory))
    budgets: dict[str, Budget] = {}
    for file in files:
        table = read_yaml(file)
        if table is None:
            continue
        budget = budget_of(table, file.stem)
        if budget.name in budgets:
            raise _duplicate_name(budget, budgets[budget.name])
        budgets[budget.name] = budget
    return tuple(budgets[name] for name in sorted(budgets))


def _files_in(directory: Path) -> list[Path]:
    try:
        files = (file for file in directory.iterdir() if file.suffix in (".yaml", ".yml"))
        return [file for file in files if not file.name.startswith(".")]  # an editor's lock, macOS' `._lab.yaml`
    except FileNotFoundError:
        return []
    except OSError as error:  # a budget that is not read limits nothing
        raise InvalidRequest(
            f"The budgets in {directory} cannot be read: {(error.strerror or str(error)).lower()}.",
            field="budget",
            value=str(directory),
            next=f"Make {directory} a directory that you can read, or remove it.",
        ) from error


def budget_of(table: Table, name: str) -> Budget:
    """Return the budget that a file's table describes; raise InvalidRequest with file and line of an error."""
    try:
        return _read_budget(table, name)
    except InvalidRequest as error:
        if table.path.name in error.message:
            raise
        raise InvalidRequest(
            f"{error.field}: {error.message}", field=error.field, value=error.value, next=f"{error.next} ({table.path})"
        ) from None


def _read_budget(table: Table, name: str) -> Budget:
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            f"{table.path.name} cannot be a budget's file: {NAME_RULE}.",
            field=table.path.name,
            value=shown(name),
            next=f"Give {table.path} another name.",
        )
    table.check_keys(KEYS, required=("amount", "period"))
    table.one_line("description")
    tz = table.one_line("tz", "UTC")
    amount = parsing.parse_amount(_as_written(table, "amount"), _field_label(table, "amount"))
    quoted_limit = _quoted_limit(table, amount)
    budget = Budget(
        name=name,
        limit=parsing.limit_in_usd(amount, quoted_limit, _field_label(table, "amount")),
        period=parsing.parse_period(table.one_line("period"), _field_label(table, "period")),
        scope=_scope(table),
        tz=tz,
        zone=zone_of(tz, field=_field_label(table, "tz")),
        quoted_limit=quoted_limit,
        file=str(table.path),
    )
    return replace(budget, **_optional_fields(table))


def _optional_fields(table: Table) -> dict[str, Any]:
    """Return the fields of the budget for the optional keys that the file has."""
    fields: dict[str, Any] = {}
    values = table.values
    if "thresholds" in values:
        fields["thresholds"] = parsing.parse_thresholds(_values(table, "thresholds"), _field_label(table, "thresholds"))
    if "forecast" in values:
        forecast = values["forecast"]
        fields["forecast"] = (
            None if forecast in (None, "none") else parsing.parse_percent(forecast, _field_label(table, "forecast"))
        )
    if "action" in values:
        fields["actions"] = parsing.parse_actions(map(str, _values(table, "action")), _field_label(table, "action"))
    if "allow_override" in values:
        if not isinstance(values["allow_override"], bool):
            raise table.error("allow_override", "has to be true or false", next="Write true or false.")
        fields["allow_override"] = values["allow_override"]
    return fields


def _scope(table: Table) -> Scope:
    scope = table.values.get("scope", {})
    if isinstance(scope, str):
        return parsing.parse_scope(scope, _field_label(table, "scope"))
    if not isinstance(scope, dict):
        raise table.error("scope", "has to be a table", next="Write `  project: vision` on a line below it.")
    return parsing.scope_from_values(scope, _field_label(table, "scope"))


def _quoted_limit(table: Table, amount: Decimal) -> QuotedAmount | None:
    """Return the limit in its own currency, at the rate in the file; None for US dollars.

    The rate has to be in the file, since a current rate would change the budget every day.
    """
    code = table.one_line("currency", "USD")
    if code.upper() == "USD":
        return None
    for key in _RATE_KEYS:
        if key not in table.values:
            raise table.error(
                key,
                f"is missing for {shown(code)}",
                next="Write how many of it one US dollar is, and as of which day: a budget keeps its rate.",
            )
    try:
        rate = typed_rate(code, _as_written(table, "rate"), _as_written(table, "rate_as_of"))
    except InvalidRequest as error:
        raise table.error(
            "rate", f"or its day or currency cannot be read: {error.message}"[:-1], next=str(error.next)
        ) from None
    return QuotedAmount(amount, replace(rate, source=table.one_line("rate_source")))


def _values(table: Table, key: str) -> list[Any]:
    value = table.values[key]
    return value if isinstance(value, list) else str(value).split(",")


def _as_written(table: Table, key: str) -> str:
    """Return a number or a text as it was written; any other value as an error shows it."""
    value = table.values[key]
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) else str(shown(value))


def _field_label(table: Table, key: str) -> str:
    return f"{table.path.name}:{table.lines.get(key, 1)}: {key}"


def _duplicate_name(budget: Budget, earlier: Budget) -> InvalidRequest:
    return InvalidRequest(
        f"The budget {budget.name} is in two files: {earlier.file} and {budget.file}.",
        field=Path(budget.file).name,
        value=budget.name,
        next="Rename or remove one of them.",
    )
