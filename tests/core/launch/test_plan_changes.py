"""What a plan that was made again has to be asked for again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.core.launch.plan import EndActions, launch_plan
from cloudgpu.core.launch.plan_changes import UNUSED_GPUS, plan_changes
from cloudgpu.core.launch.plan_cost import AddedCost
from cloudgpu.core.model.offers import Market, Note, NoteKind, Requirements, TrafficPrices, Trust
from cloudgpu.core.policies.description import DescribedRule
from cloudgpu.core.policies.guards import Agent, Safeguards, ScheduledRun
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.values.money import Money
from cloudgpu.testing import make_attempt, make_offer, new_host_key, pick
from cloudgpu.testing.fake.market import matching_offers

NOW = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=2)
OFFER = make_offer(pick(matching_offers("lab", Requirements()), Market.ON_DEMAND), usd="3.00", now=NOW)
REQUEST = make_attempt(OFFER.configuration, host_key=new_host_key(), now=NOW).request
RUN = ScheduledRun("home-1", "tower", NOW, timedelta(minutes=5), None, frozenset())
DISK = AddedCost("its disk", Money.usd(10), kept=True, source="a list")


def plan_of(offer=OFFER, others=(), request=REQUEST, now=NOW, **more):
    more = {"left_out": (), "safeguard_texts": ("an agent", "a timer"), "added_costs": (DISK,), **more}
    return launch_plan(request, [offer, *others], now=now, **more)


def priced(usd, offer=OFFER, **more):
    return replace(offer, price=replace(offer.price, per_hour=Money.usd(usd), **more))


def offered(**more):
    return replace(OFFER, configuration=replace(OFFER.configuration, **more))


AGREED = plan_of(others=(priced("4"),))
CHEAP = priced("1")


def test_what_is_cheaper_safer_or_only_in_another_zone_is_not_asked_for_again():
    assert plan_changes(AGREED, AGREED) == []
    latest = plan_of(
        priced("2", offered(zone="north-z")),
        (priced("4"),),
        now=LATER,
        added_costs=(replace(DISK, per_month=Money.usd(9)),),
        remarks=("a plain remark",),
    )
    assert plan_changes(AGREED, latest) == []
    assert plan_changes(plan_of(remarks=(Note("risky", NoteKind.ACCESS),)), plan_of(now=LATER)) == []


@pytest.mark.parametrize(
    ("latest", "told"),
    [
        (plan_of(priced("3.5"), (priced("4"),)), "it is $3.5000 an hour now, no longer $3.0000"),
        (plan_of(CHEAP, (priced("9"),)), "other offers are up to $9.0000 an hour, no longer $4.0000"),
        (plan_of(CHEAP, added_costs=(replace(DISK, per_month=Money.usd(90)),)), "cost $90.00 a month while it runs"),
        (plan_of(CHEAP, added_costs=(replace(DISK, per_month=None),)), "no price is known any longer for its disk"),
        (plan_of(CHEAP, licence="rhel"), "its operating system is billed as rhel"),
        (plan_of(offered(traffic=TrafficPrices(Money.usd(1), Money.usd(0)))), "traffic costs, too: "),
        (plan_of(offered(region="south")), "it is in south of account"),
        (plan_of(offered(account="other")), "of account other"),
        (plan_of(offered(instance_type="fake.other")), "it is a fake.other (on-demand), no longer a "),
        (plan_of(offered(trust=Trust.COMMUNITY)), "its computer is of the trust community, no longer cloud"),
        (plan_of(offered(gpus_now=("GPU 0: eve",))), "its GPUs are in use now: GPU 0: eve"),
        (plan_of(request=replace(REQUEST, setup=replace(REQUEST.setup, disk_gb=500))), "its image, disks or network"),
        (plan_of(left_out=("packages",)), "these parts of its template do not run there: packages"),
        (plan_of(request=replace(REQUEST, lease_s=7 * 3600, renew_s=9 * 3600)), "its lease is 7h, no longer 1h"),
        (plan_of(request=replace(REQUEST, policy="notebook")), "it is under the policy notebook, no longer "),
        (replace(AGREED, stop_effect="erases all"), "what a stop does is another: erases all"),
        (replace(AGREED, ends=EndActions(None, ReaperAction.TERMINATE, ReaperAction.STOP)), "does to it is another"),
        (replace(AGREED, rules=(DescribedRule(Rule.BUDGET, "stopped"),)), "does to it is another"),
        (plan_of(safeguard_texts=("an agent",)), "it is ended by an agent, no longer an agent, a timer"),
        (plan_of(safeguards=Safeguards(Agent.NONE)), "it is ended by "),
        (plan_of(CHEAP, remarks=(Note("everybody may connect", NoteKind.ACCESS),)), "everybody may connect"),
        (plan_of(CHEAP, remarks=(Note("deleted at 9", NoteKind.ERASURE),)), "deleted at 9"),
    ],
)
def test_what_is_worse_or_different_in_kind_is_told(latest, told):
    assert told in "; ".join(plan_changes(AGREED, latest))


def test_a_scheduled_run_that_is_relied_on_no_longer_is_told():
    (told,) = plan_changes(plan_of(scheduled_run=RUN), plan_of(waived=True))
    assert told == "it is ended by an agent, a timer, no longer an agent, a timer, runs of the reaper on tower"


def test_a_gpu_that_somebody_left_is_not_told():
    used, unused = plan_of(offered(gpus_now=("GPU 0: eve",))), plan_of(offered(gpus_now=(UNUSED_GPUS,)))
    assert plan_changes(used, unused) == []


def test_a_volume_that_is_no_longer_there_is_in_the_cost():
    volume = AddedCost("a volume", Money.usd(1000), kept=True, source="a list", named=True)
    there, gone = (plan_of(added_costs=(DISK, volume), volume_there=is_there) for is_there in (True, False))
    (told,) = plan_changes(there, gone)
    assert told.startswith("it costs $")
