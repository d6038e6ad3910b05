"""Who hears of which machine: its owner, or the lab; and of one that ended while nobody looked, once."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest

from cloudgpu.config.alerts.alerts import alerts_from
from cloudgpu.control.alerts.alerts import deliver
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.interruption import rehearse
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.reaper.notify import notify_outage_once
from cloudgpu.control.team.authorization import assign_owner
from cloudgpu.core.events.log import Draft
from cloudgpu.errors import InvalidRequest, LedgerUnavailable
from cloudgpu.ledger.log import files
from tests.cli.program import until
from tests.control.team.colleagues import team
from tests.receivers.web import WebReceiver

__all__ = ["team"]


@pytest.fixture
def lab(make_lab, web):
    """A lab whose alerts go to one receiver, and Ada's own to another."""
    places = (
        f'[alerts]\nto = ["json://{web.place}/lab"]\n[alerts.people]\n"Ada@lab.example" = ["json://{web.place}/ada"]\n'
    )
    return make_lab(places)


def posts(web, place):
    return [body.decode() for method, path, body in web.got if method == "POST" and path.strip("/") == place]


def without_lease(lab, name):
    (row,) = [one for one in lab.rows() if one.name == name]
    body = {"expires": None, "renew_until": None, "why": "a test", "host": "x"}
    lab.session.ledger.append([Draft("lease_set", row.id, body, lab.clock(), f"lease:{row.id}")])
    return row


@pytest.mark.soak
def test_an_owner_hears_of_their_machine_and_the_lab_of_everybody_elses(lab, web):
    lab.up(name="amber-fox", owner="ada@lab.example")
    lab.up(name="blue-owl", owner="bob")
    for name in ("amber-fox", "blue-owl"):
        without_lease(lab, name)
    deliver(lab.session, [])
    (of_ada,), (of_lab,) = posts(web, "ada"), posts(web, "lab")
    assert "amber-fox runs without a lease" in of_ada
    assert "blue-owl" not in of_ada
    assert "blue-owl runs without a lease" in of_lab
    assert "owner: bob" in of_lab
    assert "amber-fox" not in of_lab
    deliver(lab.session, [])
    assert len(web.got) == 2


def test_what_goes_wrong_with_an_owners_machine_is_told_to_the_lab_too(lab, web):
    lab.up(name="amber-fox", owner="ada@lab.example")
    (row,) = lab.rows()
    lab.session.ledger.append(
        [Draft("terminate_requested", row.id, {"why": "a test", "host": "x"}, lab.clock(), "end")]
    )
    lab.later(minutes=16)
    deliver(lab.session, [])
    assert [len(posts(web, place)) for place in ("ada", "lab")] == [1, 1]


def test_a_ledger_that_is_away_is_told_to_owners_where_the_lab_has_no_receiver(make_lab, web):
    lab = make_lab(f'[alerts.people]\nada = ["json://{web.place}/ada"]\n')
    notify_outage_once(lab.session, LedgerUnavailable("The server is down."))
    (text,) = posts(web, "ada")
    assert "The reaper cannot run: the ledger cannot be used" in text


class Interrupting(WebReceiver):
    """A receiver while whose first answer the sender is interrupted, as by Ctrl-C."""

    def _take(self, request):
        if not self.got:
            os.kill(os.getpid(), signal.SIGINT)
        super()._take(request)


def test_an_outage_is_told_again_where_the_first_sender_was_interrupted(make_lab):
    """Nobody knows whether it arrived, and nobody ends machines."""
    receiver = Interrupting()
    lab = make_lab(f'[alerts]\nto = ["json://{receiver.place}/lab"]\n')
    fault = LedgerUnavailable("The server is down.")
    try:
        with pytest.raises(KeyboardInterrupt):
            notify_outage_once(lab.session, fault)
        assert until(lambda: receiver.got, within_s=10)
        for _ in range(2):
            notify_outage_once(lab.session, fault)
        assert len(receiver.got) == 2
    finally:
        receiver.end()


def test_an_outage_is_told_by_one_of_two_processes_at_once(lab, web):
    with files.lock(lab.session.home.locks, "outage", wait=False):  # the other one is sending
        notify_outage_once(lab.session, LedgerUnavailable("The server is down."))
    assert web.got == []


def test_a_person_without_an_address_and_one_that_is_no_list_are_refused():
    for people in (["x"], {"ada": "mailto://x"}, {"ada": ["nothing"]}):
        with pytest.raises(InvalidRequest, match=r"alerts\.people"):
            alerts_from({"people": people})
    assert "mailto" not in repr(alerts_from({"people": {"ada": ["mailto://secret@x"]}}))


def test_a_machine_that_ended_between_two_passes_is_told_once_by_one_of_two_computers(lab, web):
    lab.up(name="amber-fox", owner="bob")
    lab.later(minutes=5)
    sync_all(lab.session)
    assert deliver(lab.session, []).raised == ()
    (row,) = lab.rows()
    lab.cloud.die(row.provider_id)
    lab.later(minutes=10)
    other = lab.opened()
    sync_all(lab.session)  # whoever learned of it, `ls --refresh` say, told nobody
    found = [deliver(one, []) for one in (other, lab.session, other)]
    assert [len(one.raised) for one in found] == [1, 0, 0]
    (text,) = posts(web, "lab")
    assert "amber-fox has stopped by itself (died)" in text
    assert "owner: bob" in text
    assert found[0].active == (), "it is over: nothing of it is to be put right"
    lab.later(days=4)
    assert len(deliver(lab.session, []).cleared) == 1
    assert len(web.got) == 1


def test_one_that_runs_again_and_ends_again_is_told_again(lab, web):
    lab.up(name="amber-fox")
    lab.later(minutes=5)
    sync_all(lab.session)
    for _ in range(2):
        (row,) = lab.rows()
        lab.cloud.die(row.provider_id)
        lab.later(minutes=10)
        sync_all(lab.session)
        deliver(lab.session, [])
        start(lab.session, lab.rows()[0], new_lease(lab.session, lab.rows()[0], None))
        lab.later(minutes=10)
        sync_all(lab.session)
        deliver(lab.session, [])
    assert len(web.got) == 2


def test_one_that_shut_down_and_is_billed_on_says_what_ends_that(lab, web):
    lab.up(name="amber-fox")
    lab.later(minutes=5)
    sync_all(lab.session)
    (row,) = lab.rows()
    lab.cloud.shut_down(row.provider_id)
    lab.later(minutes=5)
    sync_all(lab.session)
    assert deliver(lab.session, []).active
    (text,) = posts(web, "lab")
    assert "It is still billed: run cloudgpu stop amber-fox" in text


def test_what_was_asked_for_is_no_news(lab, web):
    lab.up(name="amber-fox")
    lab.up(name="blue-owl", spot=True)
    lab.later(minutes=5)
    sync_all(lab.session)
    fox, owl = (next(row for row in lab.rows() if row.name == name) for name in ("amber-fox", "blue-owl"))
    stop(lab.session, fox, why="asked")
    rehearse(lab.session, owl)
    lab.later(minutes=30)
    sync_all(lab.session)
    assert deliver(lab.session, []).raised == ()


def test_a_stop_that_was_written_before_by_a_clock_ahead_is_no_news(lab):
    lab.up(name="amber-fox")
    lab.later(minutes=5)
    sync_all(lab.session)
    (row,) = lab.rows()
    body = {"why": "asked", "host": "x"}
    lab.session.ledger.append([Draft("stop_requested", row.id, body, lab.clock() + timedelta(minutes=30), "ahead")])
    lab.cloud.die(row.provider_id)
    lab.later(minutes=10)
    sync_all(lab.session)
    assert deliver(lab.session, []).raised == ()


@pytest.fixture
def bos_mail(mail):
    """A lab with a web receiver, and a member's own receiver of mail that can be taken away."""
    return f"mailto://127.0.0.1:{mail.port}?from=cloudgpu@lab.example&to=bo@lab.example"


@pytest.mark.soak
def test_an_urgent_alert_that_a_persons_own_receiver_does_not_take_reaches_the_lab(make_lab, web, mail, bos_mail):
    lab = make_lab(f'[alerts]\nto = ["json://{web.place}/lab"]\n[alerts.people]\nbob = ["{bos_mail}"]\n')
    lab.up(name="amber-fox", owner="bob")
    without_lease(lab, "amber-fox")
    assert deliver(lab.session, []).outcomes[0].why is None
    assert (len(mail.got), posts(web, "lab")) == (1, [])
    lab.up(name="blue-owl", owner="bob")
    without_lease(lab, "blue-owl")
    mail.end()
    done = deliver(lab.session, [])
    tried = [(one.receiver.split("-")[0], one.why is None) for one in done.outcomes]
    assert tried == [("mailto", False), ("json", True)]
    (text,) = posts(web, "lab")
    assert "blue-owl runs without a lease" in text
    assert "bob's own receiver did not take it." in text
    assert "amber-fox" not in text
    assert done.pending == 1, "bob is still to have it"
    deliver(lab.session, [])
    assert len(posts(web, "lab")) == 1


def test_what_is_not_urgent_waits_for_a_persons_own_receiver(make_lab, web, mail, bos_mail):
    lab = make_lab(f'[alerts]\nto = ["json://{web.place}/lab"]\n[alerts.people]\nbob = ["{bos_mail}"]\n')
    mail.end()
    lab.up(name="amber-fox", owner="bob")
    lab.later(minutes=5)
    sync_all(lab.session)
    lab.cloud.die(lab.rows()[0].provider_id)
    lab.later(minutes=10)
    sync_all(lab.session)
    done = deliver(lab.session, [])
    assert (len(done.raised), done.pending, posts(web, "lab")) == (1, 1, [])


@pytest.mark.parametrize("known_by", ["ada", "ADA@lab.org", "ada-lab-org", "ada.l@example.org"])
def test_all_names_of_one_person_are_told_at_one_place(team, web, known_by):
    _, bo, pia = team.values()
    assign_owner(pia.session, "ada.l@example.org", "ada")
    pia.up(name="gift", owner="ada.l@example.org")
    bo.settings_more = (
        f'[alerts]\nto = ["json://{web.place}/lab"]\n[alerts.people]\n"{known_by}" = ["json://{web.place}/ada"]\n'
    )
    bo.session = bo.opened()
    for name in ("adas", "gift", "bos"):
        without_lease(bo, name)
    deliver(bo.session, [])
    (of_ada,), (of_lab,) = posts(web, "ada"), posts(web, "lab")
    assert [name in of_ada for name in ("adas", "gift", "bos")] == [True, True, False]
    assert [name in of_lab for name in ("adas", "gift", "bos")] == [False, False, True]
