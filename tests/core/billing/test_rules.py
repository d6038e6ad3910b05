"""The table of rules is whole, and docs/billing.md says the same, each rule with a test that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cloudgpu.core.billing.rules import ANY, GIB, HOUR_MICROS, MINUTE_US, RULES, SECOND_US, Rule, rule_for
from cloudgpu.core.model.usage import Per, Resource, Usage
from cloudgpu.providers.aws.compute.translate import _BILLED_STATES

HERE = Path(__file__).parents[1]
PAGE = (HERE.parents[1] / "docs" / "billing.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?P<cells>.*) \|$", re.MULTILINE)
KNOWN = ("verified", "secondary", "derived", "unverified", "convention")
LENGTHS = {1: "a microsecond", SECOND_US: "a second", MINUTE_US: "a minute", HOUR_MICROS: "an hour"}


def cells(rule: Rule) -> list[str]:
    """Return a rule as its row in the page has it, without its tests."""
    who = {ANY: "a plug-in"}.get(rule.provider, rule.provider)
    market = {ANY: "any"}.get(rule.market, rule.market) + (f", {rule.licence.upper()}" if rule.licence else "")
    resource = {ANY: "any"}.get(str(rule.resource), str(rule.resource))
    return [who, market, resource, _lengths(rule), _month(rule), _free(rule), _status(rule), rule.source]


def _lengths(rule: Rule) -> str:
    if rule.resource == Resource.TRAFFIC:
        return "by the GiB" if rule.gb_bytes == GIB else "by the GB (10^9 bytes)"
    text = f"by {LENGTHS[rule.granularity_us]}" if rule.granularity_us < HOUR_MICROS else "by started hours"
    least = rule.minimum_us if rule.minimum_us > rule.granularity_us else 0
    text += f", at least {LENGTHS[least]} at each start" if least else ""
    if rule.maybe_granularity_us:
        return f"{text}; or by started hours"
    return f"{text}; or at least {LENGTHS[rule.maybe_minimum_us]}" if rule.maybe_minimum_us else text


def _month(rule: Rule) -> str:
    month = f"{rule.month_hours} h" if rule.month_hours else "the calendar's"
    return f"{month}, or {rule.maybe_month_hours} h" if rule.maybe_month_hours else month


def _free(rule: Rule) -> str:
    if not rule.free_if_interrupted_us:
        return rule.states
    soon = f"interrupted within {LENGTHS[rule.free_if_interrupted_us]} of its start"
    again = "" if rule.free_every_run else " (of a later start: perhaps)"
    part = "; later, the hour in which it is interrupted" if rule.drops_part_if_interrupted else ""
    return f"{rule.states}. Free: {soon}{again}{part}"


def _status(rule: Rule) -> str:
    return f"{rule.status}, {rule.as_of}" if rule.as_of else rule.status


def rows() -> list[list[str]]:
    found = [match["cells"].split(" | ") for match in ROW.finditer(PAGE)]
    return [row for row in found if len(row) == 9 and row[0] not in ("provider", "---")]


def named_in(name: str) -> set[str]:
    tree = ast.parse((HERE / name).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " ".join(cells(rule)[:3]))
def test_every_rule_is_whole(rule):
    assert rule.granularity_us > 0
    assert rule.minimum_us >= 0
    assert rule.month_hours is None or rule.month_hours == 730
    assert rule.maybe_month_hours in (0, 730)
    assert rule.states
    assert rule.source
    assert rule.as_of or rule.status == "convention"
    assert rule.status.split(";")[0].split(",")[0] in KNOWN


def test_the_page_says_what_the_table_says_in_its_order():
    assert [row[:8] for row in rows()] == [cells(rule) for rule in RULES]


def test_every_test_that_the_page_names_is_there():
    there = {
        name: named_in(name)
        for name in (
            "billing/test_charges.py",
            "billing/test_billing_worked.py",
            "events/test_metering.py",
            "events/test_resized.py",
        )
    }
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert set(named) <= set().union(*there.values())
    assert all(re.fullmatch(r"`test_\w+`(, `test_\w+`)*", row[8]) for row in rows())


def test_the_providers_of_ours_have_a_rule_for_every_resource():
    for provider in ("aws", "gcp", "azure", "local", "ssh"):
        for resource in set(Resource) - {Resource.SLURM}:  # which no cloud sells
            for market in ("spot", "on_demand"):
                assert _rule(provider, market, resource).provider == provider


@pytest.mark.parametrize(
    ("provider", "market", "licence", "granule"),
    [
        ("aws", "on_demand", "suse", HOUR_MICROS),
        ("aws", "spot", "suse", HOUR_MICROS),
        ("aws", "on_demand", "rhel", SECOND_US),
        ("aws", "on_demand", "", SECOND_US),
        ("gcp", "on_demand", "suse", SECOND_US),
        ("somebody", "spot", "suse", 1),
    ],
)
def test_a_licence_chooses_the_rule_only_where_there_is_one(provider, market, licence, granule):
    assert _rule(provider, market, Resource.INSTANCE, licence).granularity_us == granule


def test_what_the_provider_of_aws_calls_billed_is_what_the_table_says():
    """A pending machine counts as billed for what ends machines; its bill begins when it runs (`from_running`)."""
    rule = _rule("aws", "on_demand", Resource.INSTANCE)
    assert {state.value for state in _BILLED_STATES} - {"pending"} == {rule.states.split(";")[0]}
    assert rule.from_running


def _rule(provider: str, market: str, resource: Resource, licence: str = "") -> Rule:
    begin = "2026-11-20T11:00:00.000000Z"
    return rule_for(Usage(resource, "", "", provider, market, "", 1, Per.HOUR, begin, None, (), licence=licence))
