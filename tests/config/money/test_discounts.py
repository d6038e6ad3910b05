"""[[discounts]] and [[credits]] of config.toml: what they mean, and what cannot be meant."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest

from cloudgpu.config.settings import settings_from_text
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest

AGREED = """
[[discounts]]
provider = "aws"
account = "lab"
type = "p4*"
percent = 12.5
from = 2026-01-01
until = "2026-12-31"

[[discounts]]
provider = "gcp"
region = "us-*"
market = "any"
rate = "1.20"

[[credits]]
name = "trial"
amount = 300
provider = "gcp"
until = 2027-02-18
"""


def settings(text):
    return settings_from_text(text, login="ada")


def test_discounts_and_credits_are_read():
    first, second = settings(AGREED).discounts
    assert (first.provider, first.account, first.instance_type, first.region) == ("aws", "lab", "p4*", "*")
    assert (first.percent, first.rate, first.markets) == (Fraction(25, 2), None, {Market.ON_DEMAND})
    assert first.since == datetime(2026, 1, 1, tzinfo=UTC)
    assert first.until == datetime(2027, 1, 1, tzinfo=UTC)  # until names the last day on which it holds
    assert (second.percent, second.rate, second.markets) == (None, Money.usd("1.2"), set(Market))
    assert second.source == "config.toml discounts[2]"
    (credit,) = settings(AGREED).credits
    assert (credit.name, credit.amount, credit.provider, credit.account) == ("trial", Money.usd(300), "gcp", "*")
    assert credit.until == datetime(2027, 2, 19, tzinfo=UTC)


def test_the_name_of_a_credit_may_have_spaces():
    (credit,) = settings("[[credits]]\nname = 'Startup credit'\namount = 5").credits
    assert credit.name == "Startup credit"


def test_without_them_there_are_none():
    assert (settings("").discounts, settings("").credits) == ((), ())


def one(line):
    return f'[[discounts]]\nprovider = "aws"\n{line}\n'


BAD = [
    (one('rate = "free"'), "discounts[1].rate", "free", 'rate = "1.20"'),
    (one("rate = 0"), "discounts[1].rate", "0", "above 0"),
    (one("rate = -1"), "discounts[1].rate", "-1", "above 0"),
    (one("rate = nan"), "discounts[1].rate", "nan", "above 0"),
    (one("rate = inf"), "discounts[1].rate", "inf", "above 0"),
    (one("rate = true"), "discounts[1].rate", "true", "above 0"),
    (one("rate = 1e-12"), "discounts[1].rate", "1e-12", "above 0"),
    (one("percent = 101"), "discounts[1].percent", "101", "below 100"),
    (one("percent = 100"), "discounts[1].percent", "100", "below 100"),
    (one("percent = 0"), "discounts[1].percent", "0", "above 0"),
    (one('percent = "free"'), "discounts[1].percent", "free", "above 0"),
    (one('percent = 5\nfrom = "2026-02-30"'), "discounts[1].from", "2026-02-30", "2026-12-31"),
    (one('percent = 5\nuntil = "30 February"'), "discounts[1].until", "30 February", "2026-12-31"),
    (one("percent = 5\nuntil = 2026"), "discounts[1].until", "2026", "2026-12-31"),
    (one("percent = 5\nfrom = 2026-02-01\nuntil = 2026-01-31"), "discounts[1].until", "2026-01-31", "Correct"),
    (one("percent = 5\nfrom = 2026-02-01T10:00:00"), "discounts[1].from", "2026-02-01 10:00:00", "2026-12-31"),
    (one("percent = 5\nrate = 1"), "discounts[1]", None, "percent = 12.5"),
    (one(""), "discounts[1]", None, "percent = 12.5"),
    (one('percent = 5\ntpye = "p4*"'), "discounts[1].tpye", "tpye", "type"),
    (one('percent = 5\nmarket = "spto"'), "discounts[1].market", "spto", "spot"),
    (one('percent = 5\ntype = "a b"'), "discounts[1].type", "a b", "pattern"),
    ('[[discounts]]\nprovider = "awz"\npercent = 5', "discounts[1].provider", "awz", "aws"),
    ("[[discounts]]\npercent = 5", "discounts[1].provider", None, "aws"),
    ("discounts = 5", "discounts", "5", "[[discounts]]"),
    ('[discounts]\nprovider = "aws"', "discounts", "a table", "[[discounts]]"),
    ("[[credits]]\namount = 100\n[[credits]]\namount = -5", "credits[2].amount", "-5", "above 0"),
    ("[[credits]]\nname = 'x'", "credits[1].amount", None, "above 0"),
    ("[[credits]]\namount = 5\nname = ''", "credits[1].name", "", "Startup credit"),
    ('[[credits]]\namount = 5\nname = "a\\nb"', "credits[1].name", "a\\nb", "Startup credit"),
    ("[[credits]]\namount = 5\ncurrency = 'KRW'", "credits[1].currency", "KRW", "USD"),
    ("[[credits]]\namount = 5\nuntil = '2026-02-29'", "credits[1].until", "2026-02-29", "2026-12-31"),
    ("[[credits]]\namount = 5\nuntil = '9999-12-31'", "credits[1].until", "9999-12-31", "2026-12-31"),
]


@pytest.mark.parametrize(("text", "key", "value", "way"), BAD, ids=[f"{key}={value}" for _, key, value, _ in BAD])
def test_what_cannot_be_meant_is_refused_with_field_value_and_way_out(text, key, value, way):
    with pytest.raises(InvalidRequest) as refused:
        settings(text)
    assert refused.value.exit_code == 2
    assert (refused.value.field, refused.value.value) == (f"config.toml: {key}", value)
    assert way in refused.value.next
    assert refused.value.message.startswith(f"config.toml: {key} ")


def test_a_misspelt_table_names_the_near_one():
    with pytest.raises(InvalidRequest, match="discounts"):
        settings('[[discount]]\nprovider = "aws"\npercent = 5')
