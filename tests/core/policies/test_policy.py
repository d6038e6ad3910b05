"""Who says how long a machine lives: what was typed, then config.toml, then the policy."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.policies.policy import LifetimeOverride, Origin, Policy, lifetime

H = timedelta(hours=1)
POLICY = Policy("own", 8 * H, 72 * H)
TYPED, SETTINGS, BY_POLICY = Origin
some_spans = st.integers(1, 200).map(lambda hours: hours * H)
said = st.builds(LifetimeOverride, st.none() | some_spans, st.none() | some_spans)


@pytest.mark.parametrize(
    ("typed", "settings", "lease", "renew", "by"),
    [
        (LifetimeOverride(), LifetimeOverride(), 8, 72, (BY_POLICY, BY_POLICY)),
        (LifetimeOverride(), LifetimeOverride(2 * H), 2, 72, (SETTINGS, BY_POLICY)),
        (LifetimeOverride(), LifetimeOverride(2 * H, 4 * H), 2, 4, (SETTINGS, SETTINGS)),
        (LifetimeOverride(3 * H), LifetimeOverride(2 * H, 4 * H), 3, 4, (TYPED, SETTINGS)),
        (LifetimeOverride(3 * H), LifetimeOverride(), 3, 72, (TYPED, BY_POLICY)),
        (LifetimeOverride(5 * H), LifetimeOverride(2 * H, 4 * H), 5, 5, (TYPED, TYPED)),
        (LifetimeOverride(100 * H), LifetimeOverride(), 100, 100, (TYPED, TYPED)),
        (LifetimeOverride(None, 9 * H), LifetimeOverride(2 * H, 4 * H), 2, 9, (SETTINGS, TYPED)),
        (LifetimeOverride(1 * H, 1 * H), LifetimeOverride(2 * H, 4 * H), 1, 1, (TYPED, TYPED)),
    ],
)
def test_the_nearest_word_counts(typed, settings, lease, renew, by):
    found = lifetime(POLICY, typed, settings)
    assert (found.lease, found.renew_until) == (lease * H, renew * H)
    assert (found.lease_origin, found.renew_origin) == by
    assert not found.is_contradictory


@pytest.mark.parametrize(
    ("typed", "settings"),
    [
        (LifetimeOverride(4 * H, 3 * H), LifetimeOverride()),
        (LifetimeOverride(None, 7 * H), LifetimeOverride()),
        (LifetimeOverride(), LifetimeOverride(100 * H)),
        (LifetimeOverride(), LifetimeOverride(None, 7 * H)),
    ],
)
def test_only_a_typed_lease_takes_renew_until_along(typed, settings):
    assert lifetime(POLICY, typed, settings).is_contradictory


@given(said, said)
def test_each_span_is_what_its_origin_said(typed, settings):
    found = lifetime(POLICY, typed, settings)
    words = {TYPED: typed, SETTINGS: settings, BY_POLICY: LifetimeOverride(POLICY.lease, POLICY.renew_until)}
    assert words[found.lease_origin].lease == found.lease
    assert found.renew_until in (words[found.renew_origin].renew_until, typed.lease)
    for origin, name in product((TYPED, SETTINGS), ("lease", "renew")):
        nearer = list(Origin).index(getattr(found, f"{name}_origin")) > list(Origin).index(origin)
        silent = getattr(words[origin], "lease" if name == "lease" else "renew_until") is None
        assert silent or not nearer, f"{origin} said {name}, and it was not heard"
