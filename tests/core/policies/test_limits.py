"""The lab's limits: nothing gets past them, and what is inside of them stays as it is."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, strategies as st

from cloudgpu.core.policies.policy import (
    NO_LIMITS,
    Idle,
    Lifetime,
    Limits,
    Origin,
    Policy,
    RuleAction,
    cut_lifetime,
    limit_policy,
    narrowest_limits,
)

H = timedelta(hours=1)
some = st.none() | st.integers(1, 100).map(lambda hours: hours * H)
limits = st.builds(
    Limits,
    some,
    some,
    some,
    st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    sources=st.just(("f",)),
)
idles = st.builds(
    lambda after, do: Idle(after=after * H, grace=min(after * H, H), do=do),
    st.integers(1, 100),
    st.sampled_from([RuleAction.STOP, RuleAction.WARN, RuleAction.DISABLED]),
)
policies = st.builds(
    lambda lease, more, idle: Policy("own", lease * H, (lease + more) * H, idle=idle),
    st.integers(1, 100),
    st.integers(0, 100),
    idles,
)
origins = st.sampled_from(Origin)


def within(span, most):
    return most is None or span <= most


@given(policies, limits)
def test_a_policy_inside_its_limits_is_never_longer_than_they_or_it_say(policy, most):
    found = limit_policy(policy, most)
    assert within(found.policy.renew_until, most.renew_until)
    assert found.policy.lease <= min(policy.lease, found.policy.renew_until)
    assert within(found.policy.lease, most.lease)
    assert found.policy.idle.after <= policy.idle.after
    assert found.policy.idle.grace <= found.policy.idle.after
    if most.idle_after is None:
        assert found.policy.idle == policy.idle
    else:
        assert found.policy.idle.after <= most.idle_after
        assert found.policy.idle.do is RuleAction.STOP
    assert (found.cuts == ()) == (found.policy.idle == policy.idle)


@given(policies)
def test_no_limits_cut_nothing(policy):
    assert limit_policy(policy, NO_LIMITS).policy == policy


@given(st.lists(limits, max_size=3))
def test_of_several_files_the_narrowest_word_holds(every):
    one = narrowest_limits(every)
    for name in ("lease", "renew_until", "idle_after"):
        said = [getattr(each, name) for each in every if getattr(each, name) is not None]
        assert getattr(one, name) == min(said, default=None)
    for policy in "abc":
        assert one.allows(policy) == all(each.allows(policy) for each in every)


def test_a_payer_has_to_stand_in_every_file_that_names_some():
    ada, both, none = Limits(payers=("ada",)), Limits(payers=("bob", "ada")), Limits(lease=H)
    assert narrowest_limits([ada, both, none]).payers == ("ada",)
    assert narrowest_limits([none]).payers == ()


@given(st.integers(1, 100), st.integers(0, 100), origins, origins, limits)
def test_what_was_typed_is_never_shortened_unseen(lease, more, lease_origin, renew_origin, most):
    spans = Lifetime(lease * H, (lease + more) * H, lease_origin, renew_origin)
    found, said = cut_lifetime(spans, most)
    assert found.lease == spans.lease or lease_origin is not Origin.TYPED
    assert found.renew_until == spans.renew_until or renew_origin is not Origin.TYPED
    assert len(said) == (found.lease < spans.lease) + (found.renew_until < spans.renew_until)
    if lease_origin is not Origin.TYPED:
        assert within(found.lease, most.lease)
        assert found.lease <= found.renew_until
    if renew_origin is not Origin.TYPED:
        assert within(found.renew_until, most.renew_until)


def test_the_sentence_says_what_was_cut():
    never = Policy("never", H, 2 * H, idle=Idle(do=RuleAction.DISABLED))
    assert limit_policy(never, Limits(idle_after=3 * H)).cuts == (
        "the limits stop it after 1h of idle time (policy never: do: off)",
    )
    spans = Lifetime(8 * H, 72 * H, Origin.POLICY, Origin.POLICY)
    assert cut_lifetime(spans, Limits(renew_until=6 * H))[1] == (
        "the limits cut the lease from 8h to 6h",
        "the limits cut the renew-until from 3d to 6h",
    )
