"""What `down` says before it asks: what an end deletes, and what it leaves."""

from __future__ import annotations

from cloudgpu.control.lifecycle.termination_summary import termination_sentences
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.model.facts import MachineNetwork, MachineSetup, NamedVolume
from cloudgpu.core.model.machine import billed_text, may_run_text
from cloudgpu.providers.ssh.translate import END_EFFECT
from tests.core.machines import machine

CONFIG = """provider = "ssh"
[accounts.desk]
provider = "ssh"
hosts = [{name = "bigbox", host = "127.0.0.1"}]
"""


def row(name, provider="local", account="local", volume=None):
    network = MachineNetwork((), None, None, public_ip=True, jump=None)
    named = volume and NamedVolume(volume, None)
    setup = MachineSetup(None, None, named, persistent=False, network=network, keep_disk=False)
    return machine(name=name, provider=provider, account=account, setup=setup)


def said(tmp_path, *rows):
    (tmp_path / "config.toml").write_text(CONFIG)
    session = open_session({"CLOUDGPU_HOME": str(tmp_path)})
    try:
        return termination_sentences(session, rows)
    finally:
        session.ledger.close()


def test_an_end_on_an_own_machine_leaves_its_files_and_says_so(tmp_path):
    assert said(tmp_path, row("fox", "ssh", "desk")) == END_EFFECT
    renamed = row("fox", "ssh", "as-it-was-called-before")
    assert said(tmp_path, renamed, row("owl", "ssh", "desk")) == END_EFFECT
    assert "deleted" not in END_EFFECT


def test_an_end_anywhere_else_deletes_what_is_on_the_machine(tmp_path):
    assert said(tmp_path, row("fox")) == "What is on it is deleted."
    assert said(tmp_path, row("fox"), row("owl")) == "What is on them is deleted."
    assert said(tmp_path, row("fox", "nobody", "nowhere")) == "What is on it is deleted."


def test_machines_of_both_kinds_are_told_apart_and_a_volume_stays(tmp_path):
    both = said(tmp_path, row("fox"), row("box", "ssh", "desk"))
    assert both == f"What is on fox is deleted. box: {END_EFFECT}"
    assert said(tmp_path, row("fox", volume="data")) == "What is on it is deleted. The volume data stays."


def test_no_word_says_that_a_machine_is_billed_which_its_user_owns():
    for provider in ("ssh", "local"):
        assert (billed_text(row("fox", provider), " and billed"), may_run_text(row("fox", provider))) == (
            "",
            "may still run",
        )
    rented = row("fox", "aws")
    assert (billed_text(rented, " and billed"), may_run_text(rented)) == (" and billed", "may still be billed")
