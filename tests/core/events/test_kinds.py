"""Every kind of line has a function that makes it, a type, and a place in the fold; nobody else makes a line."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import cloudgpu
from cloudgpu.core.events import general_events, job_events, launch_events, machine_events, observations
from cloudgpu.core.events.kinds import EITHER, KINDS, MACHINE, RESOURCE
from cloudgpu.core.events.projection import _STEPS
from cloudgpu.ledger.log.projections import _KINDS_OF_NO_MACHINE

PACKAGE = Path(cloudgpu.__path__[0])
MAKERS = (launch_events, observations, machine_events, general_events, job_events)
READS_STORED_LINES = "ledger/log/outbox.py"
# Their lines change no row: they are about the lab, or say what became of something that is not in the ledger.
WITHOUT_A_STEP = _KINDS_OF_NO_MACHINE | {"orphan_removed"}


def made_kinds(source: str) -> set[str]:
    """Return the kinds of lines that a module makes: the first argument of each call of `makers`."""
    makers = ("Draft", "_line", "_owner_named")
    calls = (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Call) and one.args)
    made = {ast.unparse(one.args[0]) for one in calls if getattr(one.func, "id", "") in makers}
    return made - {"kind"}  # the parameter of the last two


def lines_made_by_hand(name: str, source: str) -> list[str]:
    """Return what makes a line, or gives one another body, in a module of ours that is not for that."""
    if name == READS_STORED_LINES or ("Draft" not in source and "replace(" not in source):
        return []
    tree = ast.parse(source)
    names = {
        alias.asname or alias.name
        for one in ast.walk(tree)
        if isinstance(one, ast.ImportFrom) and one.module == "cloudgpu.core.events.log"
        for alias in one.names
        if alias.name == "Draft"
    }
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    made = [one for one in calls if getattr(one.func, "id", getattr(one.func, "attr", "")) in names]
    replaced = [
        one
        for one in calls
        if getattr(one.func, "id", "") == "replace" and {"body", "dedupe"} & {word.arg for word in one.keywords}
    ]
    return [f"{name}:{one.lineno}: {ast.unparse(one.func)}" for one in (*made, *replaced)]


def test_every_kind_has_a_function_that_makes_it():
    made = set().union(*(made_kinds(inspect.getsource(module)) for module in MAKERS))
    asked = {f"{what}_requested" for what in ("stop", "start", "park", "terminate")}
    assert "f'{what}_requested'" in made
    assert {ast.literal_eval(kind) for kind in made if not kind.startswith("f")} | asked == set(KINDS)


def test_every_kind_has_a_step_of_the_fold_or_is_known_to_need_none():
    assert not set(_STEPS) & WITHOUT_A_STEP
    assert set(_STEPS) | WITHOUT_A_STEP == set(KINDS)


def test_every_kind_whose_subject_is_no_machine_is_known_to_the_ledger_as_that():
    assert {
        kind for kind, one in KINDS.items() if one.subject not in (MACHINE, RESOURCE, EITHER)
    } == _KINDS_OF_NO_MACHINE


def test_every_body_says_what_it_is():
    for kind, one in KINDS.items():
        assert one.body.__annotations__, kind
        assert (one.body.__doc__ or "").strip().endswith("."), kind


def test_nobody_else_makes_a_line():
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    makers = {Path(module.__file__).relative_to(PACKAGE).as_posix() for module in MAKERS}
    makers.add("access/jobs/journal.py")  # it puts lines back as they were made
    found = [
        fault for name, source in files.items() if name not in makers for fault in lines_made_by_hand(name, source)
    ]
    assert found == []


IMPORT = "from cloudgpu.core.events.log import Draft"


@pytest.mark.parametrize(
    "source",
    [
        f"{IMPORT}\nline = Draft('hold_set', 'm', {{'until': None}}, now, 'd')",
        f"{IMPORT} as D\nline = D('hold_set', 'm', {{}}, now, 'd')",
        "from dataclasses import replace\nline = replace(line, body={'until': None})",
        "def f():\n    from cloudgpu.core.events.log import Draft\n    return Draft('a', 'b', {}, now, 'd')",
    ],
)
def test_a_line_that_is_made_by_hand_is_found(source):
    assert len(lines_made_by_hand("control/lifecycle/lease.py", source)) == 1
