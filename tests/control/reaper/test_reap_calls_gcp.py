"""What a pass asks of Google Cloud, call by call, on our model of it: 9 machines of ours beside 500 of another ledger.

The model counts; it never was Google Cloud. The floor is one page of `instances.aggregatedList` per 500 machines, one
guest attribute per machine that nothing else decides about, and one `stop` per machine that is to stop.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.values.times import epoch_text
from tests.cli.gcp_line import CONFIG
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.control.agents import HOUR, patient

__all__ = ["gcp", "gcp_process"]
ZONES = ["us-central1-a", "us-central1-b", "us-central1-c", "us-west1-a"]
OURS, OTHERS = 9, 500
SPACE = "cloudgpu/last-active"
LIST, STOP = "instances.aggregatedList", "instances.stop"
GUEST, WHY = "instances.getGuestAttributes", "globalOperations.aggregatedList"


class Account:
    """Machines in four zones, and the calls that are made about them."""

    def __init__(self, home, gcp):
        self.gcp = gcp
        gcp.limit("NVIDIA_T4_GPUS", 1e6, "us-central1")
        gcp.limit("NVIDIA_T4_GPUS", 1e6, "us-west1")
        gcp.limit("GPUS_ALL_REGIONS", 1e6)
        (home / "config.toml").write_text(CONFIG)
        self.session = open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=gcp.clock.now)
        self.session.pause = gcp.advance
        sync_all(self.session)  # it makes the ledger, whose id the labels bear
        self.ids = [self.made(f"cg-{number}", ZONES[number % len(ZONES)]) for number in range(OURS)]

    def fill_a_page(self):
        """Put 500 machines of another ledger beside them."""
        for number in range(OTHERS):
            labels = self.labels(f"other-{number}", "another")
            self.gcp.make(f"other-{number}", ZONES[number % len(ZONES)], labels=labels, guestAccelerators=[])

    def made(self, id_, zone):
        items = [{"key": "enable-guest-attributes", "value": "TRUE"}]
        ends = {"maxRunDuration": {"seconds": str(72 * HOUR)}, "instanceTerminationAction": "STOP"}
        schedule = {"onHostMaintenance": "TERMINATE", **ends}
        labels = self.labels(id_, self.session.ledger.id)
        return self.gcp.make(id_, zone, labels=labels, metadata={"items": items}, scheduling=schedule)

    def labels(self, id_, ledger):
        named = {"id": id_, "ledger": ledger, "name": id_, "owner": "ada", "key": id_, "policy": "default"}
        named |= {"project": "lab", "expires": self.later(hours=8), "renew-until": self.later(hours=72)}
        return {f"cloudgpu-{key}": str(text) for key, text in named.items()}

    def later(self, **span):
        return epoch_text(self.gcp.clock.now() + timedelta(**span))

    def label(self, id_, **labels):
        """Set labels as the machine's launch would."""
        held = self.gcp.instance(id_)
        held["labels"].update({f"cloudgpu-{key.replace('_', '-')}": str(text) for key, text in labels.items()})

    def pass_(self, **wish):
        """Make a pass; return what it did, and how often each action was called."""
        begun = len(self.gcp.calls)
        found = reap(self.session, ReapOptions(**wish))
        return found, Counter(call.action.removeprefix("compute.") for call in self.gcp.calls[begun:])

    def states(self, ids):
        """Return Google's words for the states of these."""
        return {self.gcp.status(one) for one in ids}

    def names(self, ids):
        return {one.partition("/")[2] for one in ids}


@pytest.fixture
def account(own_home, gcp, monkeypatch):
    patient(monkeypatch)
    return Account(own_home, gcp)


def in_use(account, gcp, ids):
    """Let these machines say of themselves that they are in use."""
    for one in ids:
        gcp.say(one, SPACE, str(account.later(minutes=-5)))


def prepared(account):
    """Let two hours pass, and some machines be over, some held, and the others say that they are in use."""
    found, made = account.pass_()
    # It takes them up; which timers they have, of which this ledger knows nothing, is asked once for all of them.
    assert (made[LIST], made[GUEST], found.decided) == (2, 0, {"keep": OURS}), "none has run long enough to be idle"
    assert (made["instances.get"], [one for one in found.sentences if "timer" in one]) == (0, [])
    account.gcp.advance(2 * HOUR)
    over, held, busy = account.ids[:3], account.ids[3:5], account.ids[5:]
    in_use(account, account.gcp, busy)
    for one in over:
        account.label(one, renew_until=account.later(minutes=-1), expires=account.later(minutes=-1))
    for one in held:
        account.label(one, hold_until=account.later(hours=1))
    return over, busy


@pytest.mark.soak
def test_a_look_is_a_page_per_500_machines_and_a_word_of_each_that_could_be_idle(account):
    over, busy = prepared(account)
    account.fill_a_page()
    found, made = account.pass_(dry_run=True)
    assert (made, found.decided) == ({LIST: 2, GUEST: len(busy)}, {"keep": OURS - len(over), "stop": len(over)})


def test_a_stop_is_a_call_for_each_with_a_look_before_and_a_proof_after(account, gcp):
    over, busy = prepared(account)
    found, made = account.pass_()
    # The look, the second look, how each is to be stopped, and the proof; and why they have ended.
    assert made == {LIST: 4, GUEST: len(busy), STOP: len(over), WHY: 1}
    assert ({one.machine for one in found.ended}, found.exit_code) == (account.names(over), 0)
    assert account.states(over) == {"TERMINATED"}
    assert account.states({*gcp.instances()} - {*over}) == {"RUNNING"}
    found, made = account.pass_()
    # What said that it is in use is not asked again before that word is an hour old; why some ended lately, is.
    assert made == {LIST: 1, WHY: 1}
