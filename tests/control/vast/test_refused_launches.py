"""What a refused launch left at vast.ai, of which nobody was told: it ends, and no machine that a user has stopped.

On our model of vast.ai, in this process, on the model's clock. The model never was vast.ai.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.errors import LaunchUncertain
from tests.control.vast.test_vast_launches import Lab

HOUR = 3600
MINUTE = Decimal("0.4") / 60  # what the dearest of these costs while `not found` proves nothing
FINDS = {
    "ls": lambda lab, _: sync_all(lab.session),
    "reap": lambda lab, _: reap(lab.session, ReapOptions()),
    "up": lambda lab, _: lab.up(region=None),
    "down": lambda lab, row: terminate_one(lab.session, row, why="a test"),
}


@pytest.fixture
def lab(vast, tmp_path):
    return Lab(tmp_path, vast)


def lose_the_refusal(vast):
    """Let the next renting be refused and leave a contract, and its answer be lost."""
    vast.refuse_with_contract()
    vast.on_call = lambda _number, action, phase: "drop" if (action, phase) == ("rent", "after") else None


def launch_unheard(vast, lab):
    """Launch something of which no listing tells in time; return its row."""
    vast.dwell(listed=30)
    with pytest.raises(LaunchUncertain):
        lab.up(region=None)
    vast.on_call = None
    vast.advance(60)
    (row,) = lab.session.ledger.machines()
    return row


def test_a_lost_refusal_is_ended_at_once_and_the_next_offer_is_rented(vast, lab):
    lose_the_refusal(vast)
    sent = vast.on_call
    vast.on_call = lambda *call: sent(*call) if len(vast.called("rent")) == 1 else None
    machine = lab.up(region=None)
    left, kept = vast.contracts.values()
    assert left.ended is not None
    assert lab.row(machine).provider_id == str(kept.id)
    rows = {row.provider_id: row for row in lab.session.ledger.machines()}
    assert (rows[str(left.id)].launch_status, rows[str(left.id)].state) == ("made", "terminated")


@pytest.mark.parametrize("verb", FINDS)
def test_what_a_lost_refusal_left_is_ended_proved_and_billed_by_whoever_finds_it(vast, lab, verb):
    lose_the_refusal(vast)
    row = launch_unheard(vast, lab)
    (left,) = vast.contracts.values()
    vast.advance(24 * HOUR)
    FINDS[verb](lab, row)
    assert left.ended is not None
    assert left not in vast.living()
    sync_all(lab.session)
    row = lab.row(row)
    assert (row.launch_status, row.state, row.pending_action) == ("made", "terminated", None)
    cost = sum(vast.bill(str(left.id)).values())
    assert cost > Decimal("0.2")  # a day of its disk
    assert abs(spent_until_now(row, lab.session.clock()).dollars - cost) < MINUTE


def test_a_dry_run_of_the_reaper_ends_nothing(vast, lab):
    lose_the_refusal(vast)
    row = launch_unheard(vast, lab)
    reap(lab.session, ReapOptions(dry_run=True))
    assert len(vast.living()) == 1
    assert lab.row(row).launch_status == "open"


def test_an_end_that_is_not_proved_is_asked_again_by_the_reaper(vast, lab):
    vast.dwell(ending=90)
    lose_the_refusal(vast)
    row = launch_unheard(vast, lab)
    sync_all(lab.session)
    assert (lab.row(row).state, lab.row(row).pending_action) == ("stopped", "terminate")
    vast.advance(120)
    reap(lab.session, ReapOptions())
    assert vast.living() == []
    assert lab.row(row).state == "terminated"


@pytest.mark.parametrize("verb", ["ls", "reap"])
def test_a_machine_that_ran_before_anybody_was_told_is_its_users_though_it_is_stopped(vast, lab, verb):
    vast.faults.lose_reply("rent")
    row = launch_unheard(vast, lab)
    (contract,) = vast.contracts.values()
    vast.advance(60)
    with vast.lock:
        vast._set(contract, "stopped")  # by its own end, or in the console
        vast.clock.settle()
    assert contract.runs
    FINDS[verb](lab, row)
    assert vast.living() == [contract]
    assert (lab.row(row).state, lab.row(row).pending_action) == ("stopped", None)


@pytest.mark.parametrize("verb", ["ls", "reap"])
def test_a_machine_that_was_stopped_while_it_was_loading_stays_once_its_launch_is_settled(vast, lab, verb):
    vast.dwell(loading=600)
    row = lab.up()
    (contract,) = vast.contracts.values()
    with vast.lock:
        vast._set(contract, "stopped")
        vast.clock.settle()
        contract.actual, contract.refused = None, True  # shown as what a refusal leaves, if anything is
    FINDS[verb](lab, row)
    assert lab.row(row).state_reason == "never ran"
    assert vast.living() == [contract]
    assert (lab.row(row).state, lab.row(row).pending_action) == ("stopped", None)
