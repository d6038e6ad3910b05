"""A call that is refused for one of many is halved until that one is alone."""

from __future__ import annotations

from math import ceil, log2

import pytest
from hypothesis import given, strategies as st

from cloudgpu.errors import AuthFailed, InstanceNotFound, InvalidRequest, ProviderUnavailable, RateLimited
from cloudgpu.providers.shared.calls import call_in_halves


class Cloud:
    """Refuses a call whole when one of its ids is bad; remembers what it did, and how often it was asked."""

    def __init__(self, bad, error=InvalidRequest):
        self.bad, self.error, self.calls, self.done = set(bad), error, [], []

    def ask(self, ids):
        self.calls.append(list(ids))
        wrong = [one for one in ids if one in self.bad]
        if wrong:
            raise self.error(f"{wrong[0]} cannot be stopped")
        self.done += ids


@pytest.mark.parametrize("kind", [InvalidRequest, InstanceNotFound, AuthFailed])
@pytest.mark.parametrize("bad", [0, 1, 19, 20, 39])
def test_one_bad_id_of_forty_costs_at_most_twelve_calls_more_and_keeps_no_other_running(bad, kind):
    cloud = Cloud([bad], kind)
    refused = call_in_halves(list(range(40)), cloud.ask)
    assert set(refused) == {bad}
    assert isinstance(refused[bad], kind)
    assert sorted(cloud.done) == [one for one in range(40) if one != bad]
    assert len(cloud.calls) - 1 <= 2 * ceil(log2(40))


@given(st.integers(1, 70), st.sets(st.integers(0, 69)))
def test_each_good_one_is_asked_once_and_each_bad_one_is_named(many, bad):
    ids = list(range(many))
    cloud = Cloud(bad)
    refused = call_in_halves(ids, cloud.ask)
    assert set(refused) == bad & set(ids)
    assert sorted(cloud.done) == sorted(set(ids) - bad)
    assert all(call for call in cloud.calls)


@pytest.mark.parametrize("kind", [ProviderUnavailable, RateLimited])
def test_a_cloud_that_does_not_answer_is_not_asked_again_for_each(kind):
    cloud = Cloud([3], kind)
    assert set(call_in_halves(list(range(40)), cloud.ask)) == set(range(40))
    assert len(cloud.calls) == 1


def test_a_credential_that_may_stop_nothing_is_believed_after_a_few_calls():
    cloud = Cloud(range(300), AuthFailed)
    assert set(call_in_halves(list(range(300)), cloud.ask)) == set(range(300))
    assert len(cloud.calls) <= 2 * ceil(log2(300)) + 1


def test_none_is_not_asked_about():
    cloud = Cloud([])
    assert call_in_halves([], cloud.ask) == {}
    assert cloud.calls == []
