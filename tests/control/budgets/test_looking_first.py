"""What budgets span is looked at before money is spent, also where a plan said that nothing would be."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.control.budgets.admission import SYNC_VALID_FOR
from cloudgpu.control.budgets.commands import BudgetOptions, set_budget_document
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch


@pytest.fixture
def two(make_lab):
    """A lab with a second account of the fake cloud."""
    lab = make_lab("")
    with (lab.home / "config.toml").open("a") as file:
        file.write(f'[accounts.second]\nprovider = "fake"\nstate_file = "{lab.home.parent / "second.json"}"\n')
    lab.session = lab.opened()
    lab.cloud = lab.session.provider("lab")
    return lab


def up(lab, **more):
    return launch(lab.session, lab.prepare(account="lab", **more), wait=False)


def test_a_machine_that_was_to_be_returned_and_is_gone_is_launched_anew_after_a_look_at_all_accounts(two):
    set_budget_document(two.session, BudgetOptions("all", "1000", "total"), overwrite=False)
    row = up(two).machine
    two.clock.advance((SYNC_VALID_FOR + timedelta(minutes=1)).total_seconds())
    sync_all(two.session)
    two.clock.advance((SYNC_VALID_FOR + timedelta(minutes=1)).total_seconds())
    prepared = two.prepare(account="lab")
    assert prepared.existing.id == row.id
    two.cloud.terminate(row.provider_id)
    two.later(seconds=30)
    other = two.session.provider("second")
    before, agreed = other.calls["list"], []
    done = launch(two.session, prepared, wait=False, confirm=lambda: agreed.append(other.calls["list"]))
    assert not done.already_existed
    assert agreed == [before + 1], "before anybody is asked whether to launch it"
