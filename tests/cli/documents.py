"""Every `-o json` document that a test sees is held against the schema of its verb (docs/reference/schemas)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"
NOT_TYPED: frozenset[str] = frozenset()  # verbs whose documents have no type yet: this list only shrinks
_INTERRUPTED = (130, 141)  # Ctrl-C, and a reader that went away: there is no document, or a part of one
_OUTPUTS = (("-o", "json"), ("--output", "json"))
_IN_ONE = frozenset({"-ojson", "--output=json"})


def check_output(args: Sequence[str], out: str, code: int) -> None:
    """Raise AssertionError where a command printed another document than its schemas allow."""
    if not asks_json(args) or code < 0 or code in _INTERRUPTED or not out.strip():
        return
    document = json.loads(out)
    faults = faults_of(args, document)
    assert not faults, f"cloudgpu {' '.join(args)}: " + "; ".join(faults)


def asks_json(args: Sequence[str]) -> bool:
    """Say whether these arguments ask for a document; what follows `--` is another program's."""
    own = list(args[: args.index("--")] if "--" in args else args)
    return any(pair in _OUTPUTS for pair in pairwise(own)) or not _IN_ONE.isdisjoint(own)


def faults_of(args: Sequence[str], document: Any) -> list[str]:
    """Return what in a command's document is not as one of its schemas says; empty where it is as one says."""
    names = names_of(args, document)
    if not names:
        return (
            [] if args[0] in NOT_TYPED else ["no schema is for this verb, and it is not in the list of those not typed"]
        )
    found = {name: faults_under(name, document) for name in names}
    return [] if not all(found.values()) else [f"{name}: {fault}" for name, faults in found.items() for fault in faults]


def names_of(args: Sequence[str], document: Any) -> list[str]:
    """Return the names of the schemas that a command's document may have: those that name most of its words."""
    if isinstance(document, dict) and len(document) == 1 and set(document) <= {"error", "declined"}:
        return list(document)
    words = {word.partition("=")[0] for word in args}
    fitting = [(len(parts), name) for name, parts in _commands() if parts[0] == args[0] and words.issuperset(parts)]
    most = max((count for count, _ in fitting), default=0)
    return [name for count, name in fitting if count == most]


def faults_under(name: str, document: Any) -> list[str]:
    """Return what in a document is not as this schema says, each with its place."""
    whole = [best_match([error]) for error in _validator(name).iter_errors(document)]  # of a union, what lies deepest
    return [f"{error.json_path}: {error.message[:300]}" for error in whole]


@cache
def _commands() -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for file in sorted(SCHEMAS.glob("*.json")):
        commands = json.loads(file.read_text())["x-commands"]
        found += [(file.stem, tuple(command.split())) for command in commands]
    return tuple(found)


@cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))
