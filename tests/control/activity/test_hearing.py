"""Machines whose use no listing tells: their provider is asked for their own word, before SSH, where it counts."""

from __future__ import annotations

import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.control.lifecycle.lease import set_hold
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.reaper.explain import build_why_document
from cloudgpu.core.activity.idle import ACTIVE, IDLE, UNKNOWN
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import ProviderUnavailable
from tests.control.conftest import Fleet

SETUP = Setup(network=Network(ssh_from=("203.0.113.7/32",)))


class AnswerTimeout(Fleet):
    """A fleet whose listing tells nothing of use; its machines take our key, and their own host keys are pinned."""

    def up(self, **more):
        launched = super().up(setup=SETUP, **more)
        client_files.pin(self.session.home.known_hosts, launched.machine.id, self.agents.host_key.public_line)
        return launched

    def works(self, name, ago=0):
        """Let a machine write that it was in use so many minutes ago."""
        self.clock.advance(-60 * ago)
        at = self.clock().replace(microsecond=0)
        self.clock.advance(60 * ago)
        self.cloud.report_activity(self.machine(name).provider_id, at)
        return at

    @property
    def heard(self):
        """How often a machine's word was asked for."""
        return self.cloud.calls["activity"]


@pytest.fixture
def quiet(tmp_path, monkeypatch, agents):
    return AnswerTimeout(tmp_path, monkeypatch, f'{agents.options}timer = "moves"\ntells = true\n', agents)


def decided(found):
    return {one.name: one.activity for one in found.decisions}


@pytest.mark.soak
def test_a_word_of_now_makes_ssh_needless(quiet, agents):
    quiet.up(name="fox")
    quiet.later(hours=2)
    at = quiet.works("fox", ago=5)
    found = quiet.pass_()
    assert (decided(found), found.decisions[0].do) == ({"fox": ACTIVE}, "keep")
    assert "it wrote 5m ago that it is in use" in found.decisions[0].why
    assert (quiet.heard, agents.asked) == (1, 0)
    assert from_iso(quiet.machine().last_active) == at


@pytest.mark.soak
def test_only_machines_that_could_be_idle_are_asked_and_each_once(quiet, agents):
    for name in ("fox", "owl", "elk", "ant"):
        quiet.up(name=name, key=name)
    set_hold(quiet.session, quiet.machine("owl"), quiet.clock().replace(hour=23))
    stop(quiet.session, quiet.machine("elk"), why="a test")
    quiet.later(hours=2)
    quiet.works("fox")
    quiet.up(name="new", key="new")
    found = quiet.idle(minutes=1)
    assert quiet.heard == 2, "fox and ant: the held one, the stopped one and the new one are not"
    assert agents.asked == 1, "ant has said nothing"
    assert (decided(found)["fox"], decided(found)["ant"]) == (ACTIVE, IDLE)
    quiet.idle(minutes=10)
    assert quiet.heard == 3, "what fox wrote still holds"


def test_a_rehearsal_asks_and_writes_nothing(quiet):
    quiet.up(name="fox")
    quiet.later(hours=2)
    quiet.works("fox")
    head = quiet.session.ledger.head()
    assert decided(quiet.pass_(dry_run=True)) == {"fox": ACTIVE}
    assert (quiet.heard, quiet.session.ledger.head()) == (1, head)


def test_what_it_wrote_stays_known_whatever_else_a_look_finds(quiet, agents):
    quiet.up(name="fox")
    quiet.later(hours=2)
    at = quiet.works("fox")
    quiet.pass_()
    stop(quiet.session, quiet.machine(), why="a test")
    quiet.later(minutes=5)
    quiet.pass_()
    assert (quiet.machine().state, from_iso(quiet.machine().last_active)) == ("stopped", at)


def test_a_quarter_of_an_hour_is_news_and_less_is_not_written(quiet):
    quiet.up(name="fox")
    quiet.later(hours=2)
    first, uses = quiet.works("fox", ago=58), quiet.machine().open_usage
    quiet.pass_()
    assert quiet.machine().open_usage == uses, "what it wrote is no start, and bills nothing anew"
    quiet.later(minutes=3)
    quiet.works("fox", ago=50)
    assert decided(quiet.pass_()) == {"fox": ACTIVE}
    assert from_iso(quiet.machine().last_active) == first
    quiet.later(minutes=30)
    last = quiet.works("fox", ago=1)
    quiet.pass_()
    assert from_iso(quiet.machine().last_active) == last


@pytest.mark.parametrize("ahead", [20, 60 * 24 * 365])
def test_a_word_of_a_clock_that_is_ahead_says_nothing(quiet, agents, ahead):
    quiet.up(name="fox")
    quiet.later(hours=2)
    quiet.works("fox", ago=-ahead)
    agents.says(quiet.clock())
    assert decided(quiet.pass_()) == {"fox": IDLE}
    assert quiet.machine().last_active is None


@pytest.mark.soak
def test_an_idle_machine_is_stopped_by_its_samples_whatever_it_wrote_long_ago(quiet):
    quiet.up(name="fox")
    quiet.later(hours=1)
    quiet.works("fox")
    quiet.idle(hours=3)
    assert [one.name for one in quiet.idle(minutes=10).ended] == ["fox"]


def test_a_provider_that_does_not_tell_is_no_sign_of_idleness_and_is_named(quiet, agents):
    quiet.up(name="fox")
    agents.runs("exit 127")
    quiet.later(hours=2)

    def refuse():
        raise ProviderUnavailable("The fake cloud is down.")

    quiet.cloud.fail_next("activity", refuse)
    (decision,) = quiet.pass_().decisions
    assert decision.activity == UNKNOWN
    assert not decision.ends
    assert "fake does not tell its word: The fake cloud is down" in decision.why


def test_a_defect_of_one_provider_keeps_no_machine_from_being_judged(quiet, agents):
    quiet.up(name="fox")

    def fall():
        raise KeyError("queryValue")

    quiet.later(hours=2)
    agents.says(quiet.clock())
    quiet.cloud.fail_next("activity", fall)
    assert decided(quiet.pass_()) == {"fox": IDLE}


def test_show_why_asks_for_its_word_too_and_writes_no_ledger(quiet, agents):
    quiet.up(name="fox")
    quiet.pass_()
    quiet.later(hours=2)
    at = quiet.works("fox", ago=4)
    agents.runs("exit 127")
    head = quiet.session.ledger.head()
    value = build_why_document(quiet.session, quiet.machine(), is_live=True)
    assert (value["activity"], from_iso(value["last_active_at"])) == (ACTIVE, at)
    assert quiet.session.ledger.head() == head
    assert quiet.heard == 1
    build_why_document(quiet.session, quiet.machine(), is_live=False)
    assert quiet.heard == 1


def test_clouds_whose_listing_tells_it_are_not_asked(fleet):
    fleet.up(name="fox")
    fleet.idle(hours=2)
    assert fleet.cloud.calls["activity"] == 0
