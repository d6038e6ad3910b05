"""Contracts as machines: states, tags, pages, and how many calls each look costs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_RENEW_UNTIL, State
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest, ProviderUnavailable
from tests.clouds.vast.contracts import Contract
from tests.clouds.vast.server import ANOTHER_USER, FIRST
from tests.providers.vast.accounts import account, attempt_of, calls, launched, offered


def look(lab, made):
    found = lab.get(made.id)
    return found.state, found.billed, found.reason


def test_a_container_that_is_loaded_is_pending_and_then_runs_at_its_own_port(vast, lab):
    vast.dwell(loading=300)
    made = launched(lab)
    assert look(lab, made) == (State.PENDING, True, None)
    assert lab.get(made.id).address is None
    vast.advance(301)
    found = lab.get(made.id)
    assert (found.state, found.address.host, found.address.user) == (State.RUNNING, "127.0.0.1", "root")
    assert found.address.port == vast.contract(made.id).port


def test_a_container_that_can_never_start_has_died(vast, lab):
    made = launched(lab)
    vast.break_down(made.id)
    assert look(lab, made) == (State.STOPPED, False, "died")


@pytest.mark.parametrize("end", [4e12, 1e20, float("inf"), float("nan"), -1, "soon", None])
def test_an_end_of_a_host_that_is_no_date_is_not_known_and_hides_no_contract(vast, lab, end):
    made = launched(lab)
    vast.contract(made.id).ask["end_date"] = end
    assert [found.id for found in lab.list().instances] == [made.id]
    assert lab.leaves_at(made.id) is None


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_price_that_is_no_number_is_not_known_and_hides_no_machine(vast, lab, number):
    made = launched(lab)
    vast.contract(made.id).ask["dph_base"] = number
    assert [(found.id, found.per_hour) for found in lab.list().instances] == [(made.id, None)]


def test_a_host_that_is_offline_says_nothing_and_bills_nothing(vast, lab):
    made = launched(lab)
    vast.go_offline(made.id)
    assert look(lab, made) == (State.UNKNOWN, False, None)


def test_an_outbid_machine_was_interrupted_and_one_on_demand_waits(vast, lab):
    spot = launched(lab, attempt_of(lab, offered(lab, market=Market.SPOT)))
    waits = launched(lab, attempt_of(lab, offered(lab, gpu="h100"), key="other"))
    for one in (spot, waits):
        lab.get(one.id)
        vast.outbid(one.id)
    assert look(lab, spot) == (State.STOPPED, False, "interrupted")
    assert look(lab, waits) == (State.PENDING, False, None)


def test_a_stop_that_takes_a_while_is_stopping_and_billed(vast, lab):
    made = launched(lab)
    lab.get(made.id)
    vast.dwell(stopping=30)
    lab.stop(made.id)
    assert look(lab, made) == (State.STOPPING, True, None)
    vast.advance(31)
    assert look(lab, made) == (State.STOPPED, False, None)


def test_credit_that_is_gone_stops_machines(vast, lab):
    made = launched(lab)
    lab.get(made.id)
    vast.run_dry()
    assert look(lab, made) == (State.STOPPED, False, None)
    assert lab.credit().remaining.dollars <= 0


def test_null_with_200_is_not_found_and_silence_is_not(vast, lab):
    made = launched(lab)
    lab.terminate(made.id)
    with pytest.raises(InstanceNotFound):
        lab.get(made.id)
    vast.faults.add("get", error="x", status=200, body={})
    with pytest.raises(ProviderUnavailable):
        lab.get(made.id)


def test_another_contract_than_was_asked_for_is_no_answer(vast, lab):
    made = launched(lab)
    row = {"id": 5, "machine_id": 1, "gpu_name": "x"}
    vast.faults.add("get", error="x", status=200, body={"instances": row})
    with pytest.raises(ProviderUnavailable):
        lab.get(made.id)


@pytest.mark.parametrize(
    ("field", "value"),
    [("ports", 5), ("ports", {"22/tcp": 5}), ("ports", {"22/tcp": ["22"]}), ("gpu_ram", "many"), ("num_gpus", [2])],
)
def test_a_contract_of_ours_with_a_field_of_a_wrong_type_is_no_answer(vast, lab, monkeypatch, field, value):
    made, shown = launched(lab), Contract.shown
    lab.get(made.id)
    monkeypatch.setattr(Contract, "shown", lambda one: {**shown(one), field: value})
    with pytest.raises(ProviderUnavailable, match=f"a contract {made.id} that cannot be read"):
        lab.get(made.id)
    lab.terminate(made.id)
    with pytest.raises(InstanceNotFound):
        lab.get(made.id)


def test_of_one_contract_that_cannot_be_read_the_others_are_known(vast, lab, monkeypatch):
    """The reaper could stop none of the account for it."""
    made, other, shown = launched(lab), launched(lab, attempt_of(lab, key="other")), Contract.shown
    number = int(made.id)
    monkeypatch.setattr(Contract, "shown", lambda one: {**shown(one), **({"ports": 5} if one.id == number else {})})
    listing = lab.list()
    assert [one.id for one in listing.instances] == [other.id]
    assert [(one.scope, "cannot be read" in one.why) for one in listing.unanswered] == [(made.id, True)]


def test_contracts_of_somebody_else_are_not_ours(vast, lab):
    made = launched(lab)
    theirs = launched(lab, attempt_of(lab, key="other"))
    del vast.contract(theirs.id).body["env"]["CLOUDGPU_TAGS"]
    assert [one.id for one in lab.list().instances] == [made.id]


@pytest.mark.parametrize("extra_env", [None, "a=b", 5, [None, ["a"], [["a"], "b"]]])
def test_a_contract_of_somebody_else_without_a_gpu_keeps_nobody_from_the_list_of_ours(
    vast, lab, monkeypatch, extra_env
):
    made = launched(lab)
    shown = Contract.shown
    bare = {"gpu_name": None, "machine_id": None, "extra_env": extra_env, "label": None}
    monkeypatch.setattr(Contract, "shown", lambda one: {**shown(one), **({} if str(one.id) == made.id else bare)})
    launched(lab, attempt_of(lab, key="theirs"))
    assert [one.id for one in lab.list().instances] == [made.id]


def test_a_contract_of_ours_whose_tags_are_not_shown_is_a_gap_and_not_absent(vast, lab, monkeypatch):
    made, shown = launched(lab), Contract.shown
    monkeypatch.setattr(Contract, "shown", lambda one: {**shown(one), "extra_env": None})
    found = lab.list()
    assert found.instances == ()
    assert [gap.scope for gap in found.unanswered] == [made.id]
    assert not found.is_complete_in(made.region)
    for theirs in ("somebody's own", "cg-lab", "cg-training_run-7"):
        vast.contract(made.id).label = theirs
        assert lab.list().is_complete_in(made.region)


def test_tags_in_a_label_that_somebody_wrote_by_hand_are_none(vast, lab):
    attempt = attempt_of(lab)
    made = launched(lab, attempt)
    for text in ("my machine", "cg-x {not json", "", "cg-x [1]"):
        vast.contract(made.id).label = text
        assert dict(lab.get(made.id).tags) == dict(attempt.tags)


def test_a_renew_until_that_a_container_may_not_learn_of_is_said_once_with_the_end_that_may_come(vast, lab):
    made, said = launched(lab), []
    lab._vast.notify = said.append
    first, later = int(made.tags[TAG_RENEW_UNTIL]), str(int(made.tags[TAG_RENEW_UNTIL]) + 7200)
    lab.tag(made.id, {TAG_EXPIRES: str(first), TAG_RENEW_UNTIL: str(first)})  # a lease within it
    assert said == []
    for _ in range(2):
        lab.tag(made.id, {TAG_EXPIRES: str(first), TAG_RENEW_UNTIL: later})
    (sentence,) = said
    assert f"it stops itself at {datetime.fromtimestamp(first, UTC):%Y-%m-%d %H:%M} UTC" in sentence


def test_tags_that_are_too_long_for_a_label_are_refused(vast, lab):
    made = launched(lab)
    with pytest.raises(InvalidRequest):
        lab.tag(made.id, {"cloudgpu-hold-until": "x" * 1024})


@pytest.mark.parametrize(("count", "lists"), [(0, 1), (1, 1), (25, 1), (26, 2), (51, 3)])
def test_a_listing_costs_a_call_per_25_contracts(vast, lab, count, lists):
    ask = next(iter(vast.hosts[0].asks(vast.begun)))
    tags = '{"cloudgpu-id": "cg-%d"}'
    for number in range(count):
        body = {"env": {"CLOUDGPU_TAGS": tags % number}, "disk": 8, "image": "x", "runtype": "args"}
        one = Contract(FIRST + number, ask, body, vast.clock.now(), None, actual="running", listed=True)
        vast.contracts[one.id] = one
    with calls(vast) as made:
        found = lab.list()
    assert made == ["list"] * lists
    assert len(found.instances) == count
    assert found.unanswered == ()


def test_pages_without_an_end_are_no_listing(vast, lab):
    page = {"success": True, "instances": [], "next_token": "again"}
    vast.faults.add("list", error="x", status=200, body=page, times=5)
    with pytest.raises(ProviderUnavailable):
        lab.list()


def test_a_page_that_fails_leaves_no_part_of_a_listing(vast, tmp_path):
    lab = account(vast, tmp_path / "lab", patience=0.1)
    vast.faults.add("list", error="x", status=500, times=100000)
    with pytest.raises(ProviderUnavailable):
        lab.list()


@pytest.mark.parametrize("status", [401, 403, 404, 418, 503])
def test_no_refusal_of_a_listing_is_an_empty_account(vast, tmp_path, status):
    lab = account(vast, tmp_path / "lab", patience=0.1)
    launched(lab)
    vast.faults.add("list", error="no", status=status, times=100000)
    with pytest.raises(CloudgpuError):
        lab.list()


def test_a_listing_that_comes_too_often_is_sent_again(vast, lab):
    made = launched(lab)
    vast.too_frequent("list")
    assert [one.id for one in lab.list().instances] == [made.id]


def test_of_ours_what_lacks_its_machine_is_not_known(vast, lab):
    row = {"id": 1, "extra_env": [["CLOUDGPU_TAGS", '{"cloudgpu-id": "cg-1"}']]}
    vast.faults.add("list", error="x", status=200, body={"instances": [row], "next_token": None})
    listing = lab.list()
    assert (listing.instances, [one.scope for one in listing.unanswered]) == ((), ["1"])


@pytest.mark.parametrize("row", [{"machine_id": 5}, None])
def test_what_lacks_its_number_is_no_contract(vast, lab, row):
    vast.faults.add("list", error="x", status=200, body={"instances": [row], "next_token": None})
    with pytest.raises(ProviderUnavailable):
        lab.list()


def test_each_verb_costs_its_calls(vast, lab):
    made = launched(lab)
    found = {}
    verbs = {
        "get": lambda: lab.get(made.id),
        "tag": lambda: lab.tag(made.id, {"cloudgpu-hold-until": "5"}),
        "stop": lambda: lab.stop(made.id),
        "start": lambda: lab.start(made.id),
        "credit": lab.credit,
        "terminate": lambda: lab.terminate(made.id),
    }
    for name, verb in verbs.items():
        with calls(vast) as asked:
            verb()
        found[name] = asked
    assert found == {
        "get": ["get"],
        "tag": ["get", "change"],
        "stop": ["change"],
        "start": ["get", "change"],
        "credit": ["user"],
        "terminate": ["destroy"],
    }


def test_two_keys_of_two_users_are_two_accounts(vast, lab, tmp_path, monkeypatch):
    mine = lab.identity()
    vast.keys["another-key"] = ANOTHER_USER
    monkeypatch.setenv("VAST_API_KEY", "another-key")
    theirs = account(vast, tmp_path / "other").identity()
    assert (mine.kind, mine.id, theirs.id) == ("vast account", "4711", "815")
    with calls(vast) as made:
        assert lab.identity() == mine
    assert made == []


def test_a_log_is_read_without_the_key_and_waited_for(vast, lab):
    made = launched(lab)
    lab.get(made.id)
    vast.say(made.id, "cloudgpu-host-key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==")
    vast.dwell(logs=9)
    assert list(lab.host_keys(made.id)) == ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA=="]


def test_a_credit_of_null_hides_no_balance_that_is_there(vast, lab):
    vast.faults.add("user", error="x", status=200, body={"id": 7, "credit": None, "balance": 12.5})
    assert lab.credit().remaining.dollars == 12.5
