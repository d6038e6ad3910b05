"""Places that price traffic by the offer, both ways: in the plan, in the ledger's line, and by hand-worked sums."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cloudgpu.cli.jobs.planned import brief_text, plan_text
from cloudgpu.control.api.jobs import _plan_document
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.jobs.deadline import choice
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import plan_run
from cloudgpu.control.launch.budget_preview import build_plan_document
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.pricing.traffic import is_traffic_charged, record_traffic, traffic_event
from cloudgpu.core.billing.charges import money, spent_until_now
from cloudgpu.core.billing.traffic_gaps import traffic_gaps
from cloudgpu.core.events.projection import machine_of
from cloudgpu.core.jobs.remote_state import Phase, RemoteState
from cloudgpu.core.launch.traffic import job_traffic, move_cost, traffic_sentence
from cloudgpu.core.model.offers import NoteKind, TrafficPrices
from cloudgpu.core.values.money import Money

GB = 10**9
BOTH_WAYS = (
    "what it is sent costs $0.20 ($0.0200 a GB), again on each machine; "
    "results cost $0.0300 for each GB that leaves it, $0.06 for as many as old had"
)
PRICES = 'traffic = { out = "0.03", into = "0.02" }'


@pytest.fixture
def lab(make_lab):
    return make_lab(PRICES)


def up(lab):
    request = parse_request(gpu="v100", name="fox")
    return lab.session.ledger.machine(launch(lab.session, prepare(lab.session, request), wait=False).machine.id)


def says(lab, sent, received):
    since = {"since": lab.clock().timestamp() - 60}
    counters = {"sent": {"bytes": sent, **since}, "received": {"bytes": received, **since}}
    return {"heartbeat": lab.clock().timestamp(), **counters}


def counted(lab, machine, sent, received):
    lab.later(minutes=20)
    record_traffic(lab.session, lab.session.ledger.machine(machine.id), says(lab, sent, received))
    return lab.session.ledger.machine(machine.id)


def traffic_cost(machine):
    return machine.usage_totals["traffic"][:3]


def test_both_directions_are_billed_at_the_offers_own_prices(lab):
    machine = up(lab)
    assert machine.traffic_prices == (30_000_000, 20_000_000)
    assert is_traffic_charged(machine)
    machine = counted(lab, machine, 2 * GB, 5 * GB)
    # 2 GB at $0.03 and 5 GB at $0.02: $0.06 + $0.10, sure, since the prices are of every byte.

    low, amount, high = traffic_cost(machine)
    assert low == amount == high
    assert amount % 160_000_000 == 0
    before = spent_until_now(machine, lab.clock())
    machine = counted(lab, machine, 2 * GB, 6 * GB)  # only what is new, and that only came in
    assert (machine.traffic.counted, machine.traffic.received) == (2 * GB, 6 * GB)
    run = Money(3 * 10**9 * 20 // 60)  # twenty minutes at $3
    assert spent_until_now(machine, lab.clock()).nanos - before.nanos == 20_000_000 + run.nanos


def test_what_came_in_is_billed_once_also_after_a_count_in_which_nothing_did(lab):
    machine = counted(lab, up(lab), GB, 5 * GB)
    before, machine = traffic_cost(machine)[1], counted(lab, machine, 2 * GB, 5 * GB)
    assert machine.traffic.received == 5 * GB
    machine = counted(lab, machine, 2 * GB, 6 * GB)
    assert money(traffic_cost(machine)[1] - before) == Money(30_000_000 + 20_000_000)  # a GB out, then a GB in


def test_two_processes_that_read_the_counter_at_once_bill_its_bytes_once(lab):
    machine = up(lab)
    lab.later(minutes=20)

    others = [lambda: record_traffic(lab.opened(), machine, says(lab, 2 * GB, 5 * GB))]

    class ReadWhileAnotherRecords(dict):
        def get(self, name, default=None):
            if name == "heartbeat" and others:
                others.pop()()
            return super().get(name, default)

    status = ReadWhileAnotherRecords(says(lab, 2 * GB, 5 * GB) | {"heartbeat": lab.clock().timestamp() - 1})
    record_traffic(lab.session, machine, status)
    assert money(traffic_cost(lab.session.ledger.machine(machine.id))[1]) == Money(160_000_000)


def test_a_count_that_has_nothing_new_is_no_line_and_one_that_began_anew_counts_from_nothing(lab):
    machine = counted(lab, up(lab), GB, GB)
    assert traffic_event(machine, says(lab, GB, GB), lab.clock()) is None
    draft = traffic_event(machine, says(lab, GB, 5), lab.clock())
    assert (draft.body["bytes_out"], draft.body["received"]["bytes_in"]) == (0, 5)


def test_an_agent_that_counts_only_what_it_sends_is_billed_for_that(lab):
    machine = up(lab)
    status = says(lab, GB, 0)
    del status["received"]
    draft = traffic_event(machine, status, lab.clock())
    assert (draft.body["bytes_out"], draft.body["nanos"]) == (GB, 30_000_000)
    assert "received" not in draft.body


@pytest.mark.parametrize("wrong", [-1, True, "many", None, 10**16])
def test_what_an_agent_cannot_have_received_is_refused(lab, wrong):
    status = says(lab, GB, 0)
    status["received"]["bytes"] = wrong
    with pytest.raises((ValueError, TypeError)):
        traffic_event(up(lab), status, lab.clock())


@pytest.mark.parametrize("heartbeat", ["-1e300", "-1e400", "1e400", "1" + "0" * 400, "NaN", '"12"', "[1]", "true"])
def test_a_time_that_an_agent_cannot_mean_is_refused_like_a_count(lab, heartbeat):
    """Who may write on the machine may write this: one machine's count must not end a run over all."""
    status = says(lab, GB, GB) | {"heartbeat": json.loads(heartbeat)}
    with pytest.raises((ValueError, TypeError)):
        traffic_event(up(lab), status, lab.clock())


def test_the_history_says_what_came_in_and_the_fold_agrees_in_any_order(lab):
    machine = counted(lab, up(lab), 2 * GB, 5 * GB)
    lines = list(lab.session.ledger.events(machine.id))
    assert machine_of(lines) == machine_of(list(reversed(lines))) == machine
    (line,) = [one for one in lines if one.kind == "traffic_observed"]
    assert json.loads(json.dumps(line.body))["received"]["stored_as"] == "fake_traffic_in"


def test_bytes_that_nobody_counted_are_named_where_an_offer_has_prices(lab, make_lab):
    machine = up(lab)
    lab.later(minutes=5)
    (gap,) = traffic_gaps([lab.session.ledger.machine(machine.id)])
    assert gap.name == "fox"


def test_the_plan_of_a_launch_says_the_prices_both_ways(lab):
    plan = build_plan_document(lab.session, prepare(lab.session, parse_request(gpu="v100")))["plan"]
    note = "traffic costs, too: $0.0200 for each GB it receives, $0.0300 for each it sends"
    assert plan["note_kinds"][plan["notes"].index(note)] == NoteKind.MONEY


def test_the_plan_of_a_job_prices_what_travels_there_and_back(lab, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data.bin").write_bytes(b"x" * 3_000_000)
    request = parse_run(argv=["true"], workdir=tmp_path / "work", gpu="v100", environ={})
    found = plan_run(lab.session, request, {})
    value = _plan_document(lab.session, found)["traffic"]
    assert (value["received_bytes"], value["received_usd"]) == (3_000_000, "0.00006")  # 0.003 GB at $0.02
    assert (value["usd_per_gb_in"], value["usd_per_gb_out"]) == ("0.02", "0.03")
    launch_plan = build_plan_document(lab.session, found.prepared)["plan"]
    for text in (plan_text(found, launch_plan, lab.clock(), verbose=False), brief_text(found, launch_plan)):
        said = " ".join(text.split())
        assert "what it is sent costs less than $0.01 ($0.0200 a GB), again on each machine" in said
        assert "results cost $0.0300 for each GB that leaves it" in said


def test_a_place_that_charges_for_nothing_says_nothing(make_lab, tmp_path):
    free = make_lab("")
    request = parse_run(argv=["true"], workdir=tmp_path, gpu="v100", environ={})
    found = plan_run(free.session, request, {})
    assert found.traffic is None
    assert _plan_document(free.session, found)["traffic"] is None


@pytest.mark.parametrize(
    ("own", "egress", "said"),
    [
        (None, None, None),
        (None, "0.09", "results cost at most $0.0900 for each GB that leaves it, $0.18 for as many as old had"),
        (
            ("0.03", "0.02"),
            "0.09",
            BOTH_WAYS,
        ),
    ],
)
def test_an_offers_own_prices_win_over_the_catalogue(own, egress, said):
    prices = own and TrafficPrices(*map(Money.usd, own))
    found = job_traffic(prices, egress and Money.usd(egress), 10 * GB, (2 * GB, "old"))
    assert (found and traffic_sentence(found)) == said


def travels(lab, machine, tmp_path, region=None):
    """Return what a move of a job costs: 1 GB of snapshot, 2 of checkpoint, 4 of results, 8 from buckets."""
    copy = tmp_path / "checkpoints" / "1"
    (copy / "data").mkdir(parents=True, exist_ok=True)
    (copy / "checkpoint.json").write_text(json.dumps({"name": "1", "files": [{"size": 2 * GB}]}))
    remote = RemoteState(Phase.RUNNING, 0.0, results_bytes=4 * GB, data=(8 * GB, 8 * GB))
    here = prepare(lab.session, parse_request(gpu="v100")).plan.offer
    there = here if region is None else replace(here, configuration=replace(here.configuration, region=region))
    return choice._transfer_cost(GB, machine, remote, tmp_path, here, there)


def test_a_move_is_priced_by_what_the_old_machines_offer_takes_for_sending_and_the_new_ones_for_receiving(
    lab, tmp_path
):
    machine = up(lab)
    # Out: the checkpoint, 2 GB at $0.03. In: snapshot, checkpoint and data, 11 GB at $0.02.
    assert travels(lab, machine, tmp_path) == Money.usd("0.28")
    # Elsewhere the results go out, too: 4 GB more; what comes from buckets the old machine does not send.
    assert travels(lab, machine, tmp_path, "elsewhere") == Money.usd("0.40")


def test_a_move_at_a_place_that_charges_for_no_traffic_costs_none(make_lab, tmp_path):
    free = make_lab("")
    assert travels(free, up(free), tmp_path, "elsewhere") == Money(0)


def test_a_move_elsewhere_is_priced_by_the_catalogue_with_what_comes_from_buckets(tmp_path):
    found = move_cost(14 * GB, 11 * GB, None, Money.usd("0.09"), None)
    assert found == Money.usd("1.26")
    assert move_cost(2 * GB, 11 * GB, None, Money.usd("0.09"), TrafficPrices(Money(0), Money.usd("0.02"))) == (
        Money.usd("0.40")
    )
