"""Every kind of line stands on the ledger's page with its body, and has an example that is of that type."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from cloudgpu.core.events.kinds import KINDS

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [json.loads(line) for line in (DOCS / "reference" / "ledger.jsonl").read_text().splitlines()]


def fault(value: Any, of: Any) -> str:
    """Return where a value is not of a type, and "" where it is."""
    origin, inner = get_origin(of), get_args(of)
    if is_typeddict(of):
        return _fault_of_record(value, of)
    if origin in (Union, types.UnionType):
        right = any(not fault(value, one) for one in inner)
    elif origin in (list, dict) and isinstance(value, origin):
        values = value if origin is list else value.values()
        return next(filter(None, (fault(one, inner[-1]) for one in values)), "")
    else:
        right = value in inner if origin is Literal else type(value) is of
    return "" if right else f"{value!r} is no {of}"


def _fault_of_record(value: Any, of: Any) -> str:
    if not isinstance(value, dict):
        return f"{value!r} is no {of}"
    hints = get_type_hints(of, include_extras=True)
    may_lack = {key for key, one in hints.items() if get_origin(one) is NotRequired}
    if wrong := (set(value) - set(hints)) | (of.__required_keys__ - may_lack - set(value)):
        return f"{of.__name__}: {sorted(wrong)} are too many or missing"
    found = ((key, fault(one, get_type_hints(of)[key])) for key, one in value.items())
    return next((f"{key}: {said}" for key, said in found if said), "")


def test_every_kind_has_one_example_in_the_order_of_the_page():
    assert [one["kind"] for one in EXAMPLES] == list(KINDS)


@pytest.mark.parametrize("example", EXAMPLES, ids=[one["kind"] for one in EXAMPLES])
def test_an_example_is_of_its_type(example):
    assert fault(example["body"], KINDS[example["kind"]].body) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nanos": "500"}, "nanos: '500' is no"),
        ({"colour": "red"}, "['colour'] are too many or missing"),
        ({"scope": {"project": None}}, "are too many or missing"),
        ({"thresholds": [50, None]}, "thresholds: None is no"),
    ],
)
def test_an_example_of_another_type_is_found(change, said):
    body = next(one["body"] for one in EXAMPLES if one["kind"] == "budget_set")
    assert said in fault(body | change, KINDS["budget_set"].body)


def test_a_missing_key_is_found():
    assert fault({}, KINDS["budget_removed"].body) == "BudgetRemoved: ['name'] are too many or missing"
