"""Repairs a ledger whose file is gone: until all accounts have told what they have, it stays in doubt."""

from __future__ import annotations

import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.control.setup.ledger_admin import verify_document
from cloudgpu.errors import LedgerUnavailable, ProviderUnavailable


def without_its_file(lab):
    """Lose the ledger's file, as when a disk was replaced; the head record beside it stays."""
    lab.session.ledger.close()
    for file in lab.session.home.ledger.glob("ledger.db*"):
        file.unlink()
    lab.session = lab.opened()
    lab.cloud = lab.session.provider("lab")


def silent_from_second_listing(lab):
    """Let the account answer the question whether it can be asked, and no further one."""
    listed = []

    def refuse():
        listed.append(1)
        return ProviderUnavailable("no answer") if len(listed) > 1 else None

    lab.cloud.fail_next("list", refuse, times=2)


def test_a_ledger_that_is_begun_anew_is_in_doubt_until_its_machines_are_found(lab):
    machine = lab.up(name="fox").machine
    without_its_file(lab)
    silent_from_second_listing(lab)
    with pytest.raises(LedgerUnavailable, match="lab does not answer"):
        verify_document(lab.session, agree=lab.said.append)
    with pytest.raises(LedgerUnavailable, match="missing or empty"):
        lab.session.check_launchable()
    lab.session = lab.opened()  # another command: that the file is there again does not end the doubt
    with pytest.raises(LedgerUnavailable, match="missing or empty"):
        lab.up(name="owl")
    assert verify_document(lab.session, agree=lab.said.append)["settled"]
    assert [row.id for row in lab.rows()] == [machine.id]
    lab.session.check_launchable()
    assert lab.up(name="fox").already_existed


def test_a_ledger_that_is_begun_anew_is_shorter_than_its_machines_say_and_that_is_settled_too(lab):
    lab.up(name="fox")
    lab.up(name="owl", new=True)  # launched when the ledger had more entries than the new one will have
    without_its_file(lab)
    verify_document(lab.session, agree=lab.said.append)
    lab.session.check_launchable()


def test_a_ledger_is_repaired_though_a_file_of_waiting_lines_cannot_be_read(lab):
    lab.up(name="fox")
    (lab.session.home.ledger / "another.outbox").mkdir()
    without_its_file(lab)
    found = verify_document(lab.session, agree=lab.said.append)
    assert found["settled"]
    (gap,) = found["unanswered"]
    assert (gap["scope"], "which accounts it names is not known" in gap["why"]) == (
        str(lab.session.home.ledger / "another.outbox"),
        True,
    )


def test_no_file_of_a_machine_is_removed_while_the_ledger_may_lack_it(lab):
    machine = lab.up(name="fox").machine
    client_files.pin(lab.session.home.known_hosts, machine.id, client_files.new_host_key().public_line)
    assert client_files.pinned_machines(lab.session.home.known_hosts) == (machine.id,)
    without_its_file(lab)
    silent_from_second_listing(lab)
    with pytest.raises(LedgerUnavailable):
        verify_document(lab.session, agree=lab.said.append)
    assert client_files.pinned_machines(lab.session.home.known_hosts) == (machine.id,)
