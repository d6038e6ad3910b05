"""The documents of `-o json`: from their types, reference/json.md and a JSON Schema of each.

The types are in `cloudgpu.views.documents`. A text under a key says what it is; an annotation says its unit, or which
words it may be.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from cloudgpu.views.documents import parts
from cloudgpu.views.documents.automation import backtest, cron, policies, reap
from cloudgpu.views.documents.jobs import jobs, spot
from cloudgpu.views.documents.machines import access, ended, machines, storage
from cloudgpu.views.documents.market import catalog, estimate, market, recommend
from cloudgpu.views.documents.money import budgets, compare, cost, reconcile, rent_or_buy, report
from cloudgpu.views.documents.setup import doctor, init, ledger

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MADE = "<!-- Made by `python docs/check.py --write` from cloudgpu/views/documents. Changes here are lost. -->\n"
_HEAD = """\
With `-o json`, a verb prints exactly one JSON document on stdout. This page lists every key of each document.

- Progress, warnings and questions go to stderr. `ssh` and `exec` pass streams through and take no `-o`.
- Each document has a [JSON Schema](schemas).
- A time is text in UTC, like `2026-11-20T12:20:10.223397Z`.
- Dollars are decimal text in US dollars, exact and not rounded, like `"0.00019678"`. Read them with a decimal type.
- What is unknown is `null`, never zero.
- The table says so if a key may be missing.

Tests compare this page with the types, and every document that they see with its schema.
"""
_PLAIN = {str: ("text", "string"), bool: ("true or false", "boolean"), int: ("integer", "integer")}
_PLAIN |= {float: ("number", "number"), type(None): ("null", "null"), object: ("anything", "")}


@dataclass(frozen=True, slots=True)
class Document:
    """A document: the name of its schema, the commands that print it (a verb with what makes it this), its type."""

    name: str
    commands: tuple[str, ...]
    kind: type


DOCUMENTS = (
    Document("up", ("up",), machines.UpDocument),
    Document("up-dry-run", ("up --dry-run",), machines.PlannedUpDocument),
    Document("ls", ("ls",), machines.LsDocument),
    Document("show", ("show",), machines.ShownDocument),
    Document("machine", ("stop", "start", "extend", "hold"), machines.MachineDocument),
    Document("cluster", ("stop", "start", "extend", "hold"), machines.ClusterMachinesDocument),
    Document("show-cluster", ("show",), machines.ShownClusterDocument),
    Document("down", ("down",), ended.DownDocument),
    Document("images", ("image ls",), storage.ImagesDocument),
    Document("volumes", ("volume ls",), storage.VolumesDocument),
    Document("image-save", ("image save",), storage.NamedResource),
    Document("removed", ("image rm", "volume rm"), storage.RemovedDocument),
    Document("orphans", ("orphans",), storage.OrphansDocument),
    Document("tunnel", ("tunnel",), access.TunnelDocument),
    Document("tunnel-stop", ("tunnel --stop",), access.ClosedTunnelDocument),
    Document("cp", ("cp",), access.CopyDocument),
    Document("allow", ("allow",), access.AllowDocument),
    Document("share", ("share",), access.ShareDocument),
    Document("bench-network", ("bench network",), access.NetworkBenchDocument),
    Document("spot", ("spot",), machines.InterruptionDocument),
    Document("jobs", ("jobs",), jobs.JobsDocument),
    Document("job", ("show",), jobs.JobDocument),
    Document("cancel", ("cancel",), jobs.CancelDocument),
    Document("spot-backtest", ("spot backtest",), spot.SpotBacktestDocument),
    Document("gpus", ("gpus",), catalog.GpusDocument),
    Document("catalog", ("catalog", "catalog show"), catalog.CatalogDocument),
    Document("catalog-item", ("catalog show",), catalog.CatalogItemDocument),
    Document("catalog-diff", ("catalog diff",), catalog.CatalogDiffDocument),
    Document("catalog-refresh", ("catalog refresh",), catalog.CatalogRefreshDocument),
    Document("regions", ("regions",), market.RegionsDocument),
    Document("quota", ("quota",), market.QuotaDocument),
    Document("quota-request", ("quota --request", "quota request"), market.QuotaRequestDocument),
    Document("estimate", ("estimate",), estimate.EstimateDocument),
    Document("recommend", ("recommend",), recommend.RecommendDocument),
    Document("compare", ("compare",), compare.CompareDocument),
    Document(
        "compare-calculated",
        ("compare --utilization", "compare --price", "compare --hours-per-day"),
        rent_or_buy.RentOrBuyDocument,
    ),
    Document("compare-desktops", ("compare --desktops",), rent_or_buy.DesktopsDocument),
    Document("cost", ("cost",), cost.CostDocument),
    Document("cost-verify", ("cost --verify",), ledger.VerifyDocument),
    Document("cost-reconcile", ("cost reconcile",), reconcile.ReconcileDocument),
    Document("budget-set", ("budget set",), budgets.BudgetSetDocument),
    Document("budget-ls", ("budget ls",), budgets.BudgetsDocument),
    Document("budget-rm", ("budget rm",), budgets.BudgetRemovedDocument),
    Document("budget-check", ("budget check",), budgets.BudgetCheckDocument),
    Document("budget-test", ("budget test",), budgets.BudgetTestDocument),
    Document("report", ("report",), report.ReportDocument),
    Document("report-send", ("report --send",), report.SentReportDocument),
    Document("export", ("export",), reconcile.ExportDocument),
    Document("policy-ls", ("policy ls",), policies.PoliciesDocument),
    Document("policy-show", ("policy show",), policies.PolicyDocument),
    Document("policy-explain", ("policy explain",), policies.PolicyOfMachineDocument),
    Document("policy-check", ("policy check",), policies.PolicyCheckDocument),
    Document("policy-publish", ("policy publish",), policies.PublishedDocument),
    Document("policy-withdraw", ("policy withdraw",), policies.WithdrawnDocument),
    Document("policy-backtest", ("policy backtest",), backtest.BacktestDocument),
    Document("reap", ("reap",), reap.ReapDocument),
    Document("cron-change", ("cron install", "cron remove"), cron.CronChangeDocument),
    Document("cron-show", ("cron show",), cron.CronDocument),
    Document("cron-test", ("cron test",), cron.CronTestDocument),
    Document("watch-status", ("watch --status",), cron.WatchDocument),
    Document("ledger-backup", ("ledger backup",), ledger.BackupDocument),
    Document("ledger-restore", ("ledger restore",), ledger.RestoreDocument),
    Document("ledger-move", ("ledger move",), ledger.LedgerMoveDocument),
    Document("ledger-init", ("ledger init",), ledger.TeamLedgerDocument),
    Document("ledger-owner", ("ledger owner",), ledger.OwnersDocument),
    Document("init", ("init",), init.InitDocument),
    Document("init-forget", ("init --forget",), init.ForgetDocument),
    Document("init-rename", ("init --rename",), init.RenameDocument),
    Document("init-cloud", ("init aws", "init azure", "init gcp"), init.InitCloudDocument),
    Document("doctor", ("doctor", "doctor --live"), doctor.DoctorDocument),
    Document("doctor-live", ("doctor --live",), doctor.LiveDoctorDocument),
    Document("demo", ("demo",), doctor.DemoDocument),
    Document("error", (), parts.ErrorDocument),
    Document("declined", (), parts.DeclinedDocument),
)


def generated_documents() -> dict[str, str]:
    """Return the text of the page and of every schema, by its path from the root."""
    found = {f"docs/reference/schemas/{one.name}.json": schema_text(one) for one in DOCUMENTS}
    return {"docs/reference/json.md": page(), **found}


def schema_text(document: Document) -> str:
    """Return a document's JSON Schema as text; `x-commands` are the commands that print it."""
    return json.dumps(schema(document), indent=1, ensure_ascii=False) + "\n"


def schema(document: Document) -> dict[str, Any]:
    """Return a document's JSON Schema: no key that it does not name is allowed in it."""
    named: dict[str, Any] = {}
    _define(document.kind, named)
    head = {"$schema": DIALECT, "title": _title(document), "x-commands": list(document.commands)}
    whole = named.pop(document.kind.__name__)
    return head | whole | ({"$defs": dict(sorted(named.items()))} if named else {})


def _define(kind: type, named: dict[str, Any]) -> None:
    """Put a record and all that it is made of into `named`."""
    if kind.__name__ in named:
        return
    named[kind.__name__] = {}
    fields = {key: {**_schema(of, named), "description": described(kind, key)} for key, of in hints(kind).items()}
    named[kind.__name__] = {
        "description": _summary(kind),
        "type": "object",
        "properties": fields,
        "required": [key for key in fields if key in kind.__required_keys__],  # type: ignore[attr-defined]
        "additionalProperties": False,
    }


def _schema(of: Any, named: dict[str, Any]) -> dict[str, Any]:
    of, more = _bare(of)
    found = _plain_schema(of, more)
    if found is not None:
        return found
    if is_typeddict(of):
        _define(of, named)
        return {"$ref": f"#/$defs/{of.__name__}"}
    some = [_schema(one, named) for one in get_args(of)]
    if _is_union(of):
        return _union(some)
    if get_origin(of) is list:
        return {"type": "array", "items": some[0]}
    return {"type": "object", **({"additionalProperties": some[1]} if some[1] else {})}


def _plain_schema(of: Any, more: tuple[Any, ...]) -> dict[str, Any] | None:
    unit, words = _unit(more), _closed(of, more)
    if unit is not None:
        return {"type": "string", "pattern": unit.pattern}
    if words is not None:
        return {"enum": words}
    word = _PLAIN[of][1] if of in _PLAIN else None
    return None if word is None else {"type": word} if word else {}


def hints(kind: type) -> dict[str, Any]:
    """Return the type of each key; in a record that extends `Cases[Time]`, that of what it extends is filled in."""
    filled = {
        parameter: argument
        for base in getattr(kind, "__orig_bases__", ())
        if get_args(base)
        for parameter, argument in zip(get_origin(base).__parameters__, get_args(base), strict=True)  # type: ignore[union-attr]
    }
    return {key: filled.get(of, of) for key, of in get_type_hints(kind, include_extras=True).items()}


def _unit(more: tuple[Any, ...]) -> parts.Unit | None:
    return next((one for one in more if isinstance(one, parts.Unit)), None)


def _closed(of: Any, more: tuple[Any, ...]) -> list[str] | None:
    """Return the only words that a text may be; None where it may be any."""
    for one in (of, *more):
        if get_origin(one) is Literal:
            return [str(word) for word in get_args(one)]
    enums = [one for one in more if inspect.isclass(one) and issubclass(one, StrEnum)]
    return [str(word) for word in enums[0]] if enums else None


def _union(options: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one of these; one that may also be null says so in its own words where it can."""
    some = [one for one in options if one != {"type": "null"}]
    if len(some) == 1 and len(options) == 2:  # noqa: PLR2004  (something, or null)
        if "enum" in some[0]:
            return {"enum": [*some[0]["enum"], None]}
        if "type" in some[0]:
            return some[0] | {"type": [some[0]["type"], "null"]}
    return {"anyOf": options}


def _bare(of: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without NotRequired and annotations, and these."""
    if get_origin(of) is NotRequired:
        of = get_args(of)[0]
    if get_origin(of) is Annotated:
        inner, more = _bare(get_args(of)[0])
        return inner, (*get_args(of)[1:], *more)
    return of, ()


def _is_union(of: Any) -> bool:
    return get_origin(of) in (Union, types.UnionType)


def page() -> str:
    """Return the page: documents in the order of the table, then what they are made of."""
    named: dict[str, type] = {}
    for one in DOCUMENTS:
        for kind in _parts_of(one.kind):
            named.setdefault(kind.__name__, kind)
    printed = {one.kind.__name__ for one in DOCUMENTS}
    linked = {name: kind for name, kind in named.items() if name not in printed or name in _SHARED}
    lines = [f"# JSON documents\n\n{MADE}", _HEAD]
    lines += [_section(f"## {_title(one)}", one.kind) for one in DOCUMENTS if one.kind.__name__ not in _SHARED]
    lines += ["## Parts\n"]
    lines += [_section(f"### {_anchor(kind)}", kind) for kind in linked.values()]
    return "\n".join(lines)


_SHARED = ("MachineDocument", "NamedResource", "JobDocument")  # documents that are parts of others, too


def _parts_of(kind: type) -> Iterator[type]:
    """Yield the records that a record is made of, each with its own, in the order of the keys."""
    for of in hints(kind).values():
        for one in _records(of):
            yield one
            yield from _parts_of(one)


def _records(of: Any) -> Iterator[type]:
    of, _ = _bare(of)
    if is_typeddict(of):
        yield of
    else:
        for one in () if get_origin(of) is Literal else get_args(of):
            yield from _records(one)


def _title(document: Document) -> str:
    return ", ".join(document.commands) or document.name


def _anchor(kind: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__.removesuffix("Document")).lower()


def _section(heading: str, kind: type) -> str:
    rows = [
        [f"`{key}`", _said(of), described(kind, key) + ("" if key in kind.__required_keys__ else " Not always there.")]  # type: ignore[attr-defined]
        for key, of in hints(kind).items()
    ]
    lines = [["key", "type", "is"], ["---"] * 3, *rows]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{heading}\n\n{inspect.cleandoc(kind.__doc__ or '')}\n\n{table}\n"


def _said(of: Any) -> str:
    """Return a type for people: `list of [machine](#machine)`, `time or null`, `text`."""
    of, more = _bare(of)
    unit, words = _unit(more), _closed(of, more)
    if unit is not None or words is not None:
        return unit.name if unit is not None else _words(words or [])
    if is_typeddict(of):
        return f"[{_anchor(of)}](#{_anchor(of)})"
    some = [_said(one) for one in get_args(of)]
    if _is_union(of):
        return " or ".join(some)
    if get_origin(of) is list:
        return f"list of {some[0]}"
    return f"object of {some[1]}" if some else _PLAIN[of][0]


def _words(words: list[str]) -> str:
    return " or ".join(f"`{one}`" for one in words)


def _summary(kind: type) -> str:
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())


def described(kind: type, key: str) -> str:
    """Return what a key is, as the text under it says, or its annotation where no such text can stand."""
    for one in _line_of(kind):
        if key in _texts(one.__module__).get(one.__name__, {}):
            return _texts(one.__module__)[one.__name__][key]
        _, more = _bare(hints(one).get(key))
        said = [text for text in more if isinstance(text, str)]
        if said:
            return said[0]
    raise LookupError(f"{kind.__name__}.{key} has no description")


def _line_of(kind: type) -> Iterator[type]:
    """Yield a record and those that it extends, which a TypedDict forgets."""
    yield kind
    module = sys.modules[kind.__module__]
    for base in _bases(kind.__module__).get(kind.__name__, ()):
        if is_typeddict(getattr(module, base, None)):
            yield from _line_of(getattr(module, base))


@cache
def _classes(module: str) -> tuple[ast.ClassDef, ...]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return tuple(one for one in tree.body if isinstance(one, ast.ClassDef))


def _bases(module: str) -> dict[str, tuple[str, ...]]:
    return {one.name: tuple(ast.unparse(base).partition("[")[0] for base in one.bases) for one in _classes(module)}


@cache
def _texts(module: str) -> dict[str, dict[str, str]]:
    """Return what the texts under the keys of a module's records say, by record and key."""
    return {one.name: dict(_pairs(one.body)) for one in _classes(module)}


def _pairs(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for one, after in pairwise(body):
        match one, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
