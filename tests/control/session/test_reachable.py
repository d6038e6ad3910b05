"""What a home remembers of the accounts it has asked, and what a killed writer of that leaves."""

from __future__ import annotations

import threading

from cloudgpu.access.files import locked
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.session.base import remember_identity, remembered_identities
from cloudgpu.control.session.identity import unqueried_accounts
from cloudgpu.core.model.identity import AccountIdentity


def test_what_a_killed_writer_left_goes_when_the_next_one_writes(lab):
    left = lab.home / ".identities.json.abcdefgh.part"
    left.write_text('{"at": [')
    remember_identity(lab.session, "lab", None, AccountIdentity("test-account", "one", "the account one"))
    assert not left.exists()
    assert [path.name for path in lab.home.glob(".identities*")] == []
    assert remembered_identities(lab.session)["lab"] == {"": ["test-account", "one"]}


def test_two_that_write_at_once_keep_what_both_have_seen(lab):
    remember_identity(lab.session, "lab", None, AccountIdentity("test-account", "one", "the account one"))
    file = lab.session.home.identities
    two = AccountIdentity("test-account", "two", "the account two")
    with locked(file):  # as another process that has read, and is about to write
        read = file.read_text()
        writer = threading.Thread(target=remember_identity, args=(lab.session, "other", None, two))
        writer.start()
        writer.join(0.5)  # it waits for the lock; without it, it would be done
        file.write_text(read.replace('"lab"', '"renamed"'))
    writer.join(10)
    assert remembered_identities(lab.session) == {
        "renamed": {"": ["test-account", "one"]},
        "other": {"": ["test-account", "two"]},
    }


def test_a_sync_by_a_clock_that_was_days_ahead_is_not_one_of_lately(lab):
    lab.up()
    machines = lab.session.ledger.machines()
    lab.later(days=3)
    sync_all(lab.session)
    (gap,) = unqueried_accounts(lab.session, machines, [])
    assert gap.was_asked_lately
    lab.later(days=-3)
    (gap,) = unqueried_accounts(lab.session, machines, [])
    assert not gap.was_asked_lately
