"""Launches at a place without tokens: sent once, found by their label; and a refusal that leaves a contract."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.core.launch.attempt import attempt_from_json, attempt_to_json
from cloudgpu.core.model.instances import REFUSED_PREFIX, State
from cloudgpu.core.model.launch import BootPart, Setup
from cloudgpu.core.model.offers import Basis, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed, InvalidRequest, LaunchUncertain, NoCapacity, ProviderUnavailable, RateLimited
from cloudgpu.providers.rest.once import SEND_WINDOW
from tests.clouds.rest_faults import FOREVER
from tests.clouds.vast.contracts import Contract
from tests.clouds.vast.server import KEY
from tests.providers.vast.accounts import account, attempt_of, calls, launched, offered


def test_a_launch_is_one_call_with_the_offer_the_label_and_the_tags(vast, lab):
    attempt = attempt_of(lab)
    made = launched(lab, attempt)
    (sent,) = vast.called("rent")
    assert sent.where["ask"] == str(attempt.call["offer"])
    assert sent.body["label"] == f"cg-{attempt.token}"
    assert json.loads(sent.body["env"]["CLOUDGPU_TAGS"]) == dict(attempt.tags)
    assert (sent.body["client_id"], sent.body["runtype"], sent.body["cancel_unavail"]) == ("me", "args", True)
    assert "price" not in sent.body
    assert made.id == "20000001"


def test_neither_the_users_key_nor_a_private_key_goes_onto_the_host(vast, lab):
    attempt = attempt_of(lab)
    launched(lab, attempt)
    sent = json.dumps(vast.called("rent")[0].body)
    assert KEY not in sent
    assert "PRIVATE KEY" not in sent
    assert attempt.boot.host_private_key.splitlines()[1] not in sent


def test_an_interruptible_launch_bids_more_than_the_least_and_never_more_than_on_demand(vast, lab):
    made = launched(lab, attempt_of(lab, offered(lab, market=Market.SPOT)))
    (sent,) = vast.called("rent")
    contract = vast.contract(made.id)
    assert contract.ask["min_bid"] < sent.body["price"] <= contract.ask["dph_base"]
    assert made.market is Market.SPOT


def test_a_lost_answer_is_found_by_its_label_and_nothing_is_sent_again(vast, lab):
    attempt = attempt_of(lab)
    vast.faults.lose_reply("rent")
    assert launched(lab, attempt).id == launched(lab, attempt).id
    assert len(vast.called("rent")) == len(vast.living()) == 1


@pytest.mark.parametrize("status", [500, 503])
def test_a_fault_that_says_nothing_is_uncertain_and_never_sent_again(vast, lab, status):
    attempt = attempt_of(lab)
    vast.faults.add("rent", error="internal", status=status)
    for _ in range(2):
        with pytest.raises(LaunchUncertain):
            launched(lab, attempt)
    assert len(vast.called("rent")) == 1
    assert vast.living() == []


def test_a_contract_that_is_listed_late_is_waited_for_by_whoever_settles(vast, lab):
    attempt = attempt_of(lab)
    vast.dwell(listed=60)
    vast.faults.lose_reply("rent")
    with pytest.raises(LaunchUncertain):
        launched(lab, attempt)
    vast.advance(90)
    assert launched(lab, attempt).id == "20000001"
    assert len(vast.called("rent")) == 1


def test_a_call_that_came_too_often_is_sent_again_later(vast, lab):
    attempt = attempt_of(lab)
    vast.too_frequent("rent")
    with pytest.raises(RateLimited):
        launched(lab, attempt)
    assert launched(lab, attempt).state is not State.TERMINATED
    assert len(vast.living()) == 1


def test_what_was_never_connected_is_sent_again(vast, lab):
    attempt = attempt_of(lab)
    place = lab._vast.client.api
    object.__setattr__(place, "base_url", "http://127.0.0.1:9")
    with pytest.raises(ProviderUnavailable):
        launched(lab, attempt)
    object.__setattr__(place, "base_url", vast.url)
    assert launched(lab, attempt).id == "20000001"


def test_a_replay_from_a_fresh_home_makes_no_second_machine(vast, lab, tmp_path):
    attempt = attempt_from_json(json.loads(json.dumps(attempt_to_json(attempt_of(lab)))))
    made = launched(lab, attempt)
    vast.advance(SEND_WINDOW.total_seconds() + 60)
    other = account(vast, tmp_path / "another-computer")
    assert launched(other, attempt).id == made.id
    other.terminate(made.id)
    with pytest.raises(LaunchUncertain):
        launched(account(vast, tmp_path / "a-third"), attempt)
    assert len(vast.called("rent")) == 1


def test_a_replay_from_a_home_that_has_sent_nothing_finds_the_offer_taken_by_its_own_launch(vast, lab, tmp_path):
    attempt = attempt_of(lab)
    made = launched(lab, attempt)
    assert launched(account(vast, tmp_path / "another-computer"), attempt).id == made.id
    assert len(vast.called("rent")) == 2
    assert len(vast.living()) == 1


@pytest.mark.parametrize("refusal", [{"error": "internal", "status": 500}, {"error": "no_such_ask", "status": 404}])
def test_a_listing_that_ignores_the_filter_gives_no_launch_another_contract(vast, lab, refusal):
    theirs = launched(lab, attempt_of(lab, key="theirs"))
    lab.stop(theirs.id)
    vast.filters_lists = False
    vast.faults.add("rent", **refusal)
    with pytest.raises((LaunchUncertain, NoCapacity)):
        launched(lab, attempt_of(lab, key="ours"))
    assert [str(one.id) for one in vast.living()] == [theirs.id]
    assert not vast.called("destroy")


def test_a_listing_that_ignores_the_filter_still_finds_the_launch(vast, lab):
    launched(lab, attempt_of(lab, key="theirs"))
    vast.filters_lists = False
    vast.faults.lose_reply("rent")
    assert launched(lab, attempt_of(lab, key="ours")).id == "20000002"


def test_a_label_with_changed_tags_still_names_its_launch(vast, lab, tmp_path):
    attempt = attempt_of(lab)
    made = launched(lab, attempt)
    lab.tag(made.id, {"cloudgpu-expires": "1800000000"})
    assert launched(lab, attempt).id == made.id


@pytest.mark.parametrize("status", [404, 410])
def test_an_offer_that_is_gone_is_no_capacity_and_may_be_tried_again(vast, lab, status):
    attempt = attempt_of(lab)
    vast.faults.add("rent", error="no_such_ask", status=status)
    with pytest.raises(NoCapacity):
        launched(lab, attempt)
    assert launched(lab, attempt).id == "20000001"


def test_no_such_instance_is_no_answer_to_a_launch_and_leaves_it_uncertain(vast, lab):
    vast.faults.add("rent", error="no_such_instance")
    with pytest.raises(LaunchUncertain):
        launched(lab)


def test_an_offer_that_somebody_else_rented_is_no_capacity(vast, lab):
    attempt = attempt_of(lab)
    launched(lab, attempt_of(lab, attempt.offer.configuration, key="other"))
    with pytest.raises(NoCapacity):
        launched(lab, attempt)


def test_no_credit_is_said_with_the_page_where_one_pays(vast, lab):
    attempt = attempt_of(lab)
    vast.deposit = 0
    with pytest.raises(AuthFailed) as refused:
        launched(lab, attempt)
    assert "https://cloud.vast.ai/billing/" in refused.value.next
    assert vast.living() == []


def test_a_refusal_that_left_a_contract_is_destroyed_and_returned_as_ended(vast, lab):
    attempt = attempt_of(lab)
    vast.refuse_with_contract()
    ended = launched(lab, attempt)
    assert ended.state is State.TERMINATED
    assert ended.reason.startswith(REFUSED_PREFIX)
    assert ended.tags == dict(attempt.tags)
    assert vast.living() == []
    assert [call.action for call in vast.calls if call.action in ("rent", "destroy")] == ["rent", "destroy"]


def test_a_refusal_under_status_200_is_one_too(vast, lab):
    vast.refuse_with_contract(status=200)
    assert launched(lab).state is State.TERMINATED
    assert vast.living() == []


def test_a_contract_of_a_refusal_that_cannot_be_ended_is_named_and_found_later(vast, tmp_path):
    lab = account(vast, tmp_path / "lab", patience=0.1)
    attempt = attempt_of(lab)
    vast.refuse_with_contract()
    fault = vast.faults.add("destroy", error="internal", status=500, times=FOREVER)
    with pytest.raises(LaunchUncertain) as uncertain:
        launched(lab, attempt)
    assert uncertain.value.value == "20000001"
    vast.faults.remove(fault)
    found = launched(lab, attempt)
    assert (found.id, found.state, found.billed) == ("20000001", State.TERMINATED, False)
    assert vast.living() == []


def test_a_refusal_whose_answer_was_lost_is_ended_and_its_disk_billed_from_the_call(vast, lab):
    attempt = attempt_of(lab)
    vast.refuse_with_contract()
    vast.on_call = lambda _number, action, phase: "drop" if (action, phase) == ("rent", "after") else None
    ended = launched(lab, attempt)
    assert (ended.state, ended.reason.startswith(REFUSED_PREFIX)) == (State.TERMINATED, True)
    assert ended.since == ended.launched_at is not None
    assert abs(ended.launched_at - vast.contract(ended.id).made) < timedelta(seconds=5)
    assert vast.living() == []


def test_any_stopped_contract_of_a_call_that_was_just_sent_is_a_refusals(vast, lab, monkeypatch):
    shown = Contract.shown
    monkeypatch.setattr(Contract, "shown", lambda one: {**shown(one), "start_date": one.made.timestamp()})
    attempt = attempt_of(lab)
    vast.refuse_with_contract()
    vast.on_call = lambda _number, action, phase: "drop" if (action, phase) == ("rent", "after") else None
    assert launched(lab, attempt).state is State.TERMINATED
    assert vast.living() == []


def test_a_contract_that_ran_and_was_stopped_is_returned_to_a_replay_as_it_is(vast, lab):
    attempt = attempt_of(lab)
    vast.faults.lose_reply("rent")
    made = launched(lab, attempt)
    vast.advance(60)
    lab.stop(made.id)
    vast.advance(60)
    found = launched(lab, attempt)
    assert (found.id, found.state) == (made.id, State.STOPPED)
    assert [str(one.id) for one in vast.living()] == [made.id]


def test_a_bid_below_the_least_leaves_nothing(vast, lab):
    attempt = attempt_of(lab, offered(lab, market=Market.SPOT))
    next(host for host in vast.hosts if f"m{host.machine_id}" == attempt.offer.configuration.zone).min_bid = 0.3
    assert launched(lab, attempt).state is State.TERMINATED
    assert vast.living() == []


def test_an_offer_that_became_dearer_than_the_plan_is_not_rented(vast, lab):
    attempt = attempt_of(lab)
    price = Price(Money.usd("0.01"), "a plan", vast.clock.now(), Basis.QUOTED)
    with pytest.raises(NoCapacity):
        launched(lab, replace(attempt, offer=replace(attempt.offer, price=price)))
    assert not vast.called("rent")


def test_a_template_that_is_too_large_is_refused_before_anything_is_sent(vast, lab):
    noise = "".join(f"echo {number**7:x}\n" for number in range(5000))
    attempt = attempt_of(lab, parts=[BootPart("on_start", noise)])
    with pytest.raises(InvalidRequest) as refused:
        launched(lab, attempt)
    assert refused.value.field == "template"
    assert not vast.called("rent")


def test_the_image_of_a_templates_container_is_the_machine(vast, lab):
    launched(lab, attempt_of(lab, parts=[BootPart("container", "nvcr.io/nvidia/pytorch:25.06-py3")]))
    assert vast.called("rent")[0].body["image"] == "nvcr.io/nvidia/pytorch:25.06-py3"


def test_the_real_agent_fits_into_a_containers_environment(vast, lab):
    from cloudgpu.agent.program import source

    launched(lab, attempt_of(lab, agent_source=source()))
    env = vast.called("rent")[0].body["env"]
    assert sum(len(name) + len(value) for name, value in env.items()) < 30_000


def test_an_offer_whose_host_leaves_before_the_lease_ends_is_not_taken(vast, lab):
    item = offered(lab)
    next(host for host in vast.hosts if f"m{host.machine_id}" == item.zone).end_in_s = 3 * 3600.0
    attempt_of(lab, item, lease=timedelta(hours=2))
    with pytest.raises(NoCapacity) as refused:
        attempt_of(lab, item, lease=timedelta(hours=4))
    assert "before the lease ends" in refused.value.message


def test_a_launch_costs_two_calls(vast, lab):
    attempt = attempt_of(lab)
    with calls(vast) as made:
        launched(lab, attempt)
    assert made == ["rent", "get"]


def test_an_image_that_was_asked_for_wins_over_that_of_a_template(vast, lab):
    parts = (BootPart("container", "nvcr.io/nvidia/pytorch:25.01-py3\n"),)
    launched(lab, attempt_of(lab, parts=parts, setup=Setup(image="ghcr.io/lab/own:1")))
    assert vast.called("rent")[0].body["image"] == "ghcr.io/lab/own:1"


def test_a_key_that_may_rent_and_not_look_has_made_the_machine_all_the_same(vast, lab):
    vast.faults.deny("get")
    made = launched(lab, attempt_of(lab))
    assert [str(one.id) for one in vast.living()] == [made.id]


def test_a_key_that_is_revoked_after_a_lost_answer_leaves_the_launch_uncertain(vast, lab):
    attempt = attempt_of(lab)
    vast.faults.lose_reply("rent")
    fault = vast.faults.deny("list")
    with pytest.raises(LaunchUncertain, match="may not do that"):
        launched(lab, attempt)
    vast.faults.remove(fault)
    assert launched(lab, attempt).id == str(vast.living()[0].id)
    assert len(vast.called("rent")) == 1


def test_a_contract_of_a_refusal_that_the_key_may_not_destroy_is_named_and_uncertain(vast, lab):
    vast.refuse_with_contract()
    vast.faults.deny("destroy")
    with pytest.raises(LaunchUncertain) as raised:
        launched(lab, attempt_of(lab))
    assert raised.value.value == str(vast.living()[0].id)
