from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.launch.attempt import attempt_from_json, attempt_to_json
from cloudgpu.core.model.launch import Attempt, BootPart
from cloudgpu.core.model.offers import Basis, Market, Price, Requirements, price_from_json, price_to_json
from cloudgpu.core.values.money import Money
from cloudgpu.testing import make_attempt, new_host_key
from cloudgpu.testing.fake.market import matching_offers

HOST_KEY = new_host_key()
texts = st.text(max_size=30)
times = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  (naive bounds)
prices = st.builds(Price, st.integers(0, 10**15).map(Money), texts, times, st.sampled_from(Basis))


@st.composite
def attempts(draw: st.DrawFn) -> Attempt:
    market = draw(st.sampled_from(Market))
    return make_attempt(
        draw(st.sampled_from(matching_offers("lab", Requirements(market=market)))),
        key=draw(texts),
        number=draw(st.integers(1, 99)),
        tags=draw(st.dictionaries(texts, texts, max_size=3)),
        lease=timedelta(seconds=draw(st.integers(1, 10**6))),
        now=draw(times),
        agent_source=draw(texts),
        parts=draw(st.lists(st.builds(BootPart, texts, texts), max_size=3)),
        jupyter=draw(st.lists(texts, max_size=3)),
        client_public_keys=draw(st.lists(texts, min_size=1, max_size=2)),
        host_key=HOST_KEY,
    )


@given(attempts())
def test_a_saved_call_is_sent_again_exactly(attempt: Attempt) -> None:
    written = json.dumps(attempt_to_json(attempt))
    assert attempt_from_json(json.loads(written)) == attempt


@given(prices)
def test_a_price_comes_back_as_it_went_in(price: Price) -> None:
    assert price_from_json(json.loads(json.dumps(price_to_json(price)))) == price


def saved() -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(
        json.dumps(attempt_to_json(make_attempt(matching_offers("lab", Requirements())[0], host_key=HOST_KEY)))
    )
    return plain


@pytest.mark.parametrize("part", ["token", "offer", "request", "boot", "tags", "expires"])
def test_a_call_that_lacks_a_part_is_refused(part: str) -> None:
    damaged = saved()
    del damaged[part]
    with pytest.raises((KeyError, TypeError, ValueError)):
        attempt_from_json(damaged)


@pytest.mark.parametrize(
    ("part", "value"),
    [("expires", "soon"), ("expires", "2026-11-20T11:00:00"), ("boot", {}), ("request", {"key": "k"}), ("tags", 3)],
)
def test_a_call_with_a_damaged_part_is_refused(part: str, value: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        attempt_from_json(saved() | {part: value})


def test_a_repr_holds_no_key_and_no_source() -> None:
    attempt = make_attempt(
        matching_offers("lab", Requirements())[0], host_key=HOST_KEY, agent_source="the-agents-source"
    )
    for value in (attempt, attempt.boot):
        assert "PRIVATE KEY" not in repr(value)
        assert "the-agents-source" not in repr(value)
