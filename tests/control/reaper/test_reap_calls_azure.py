"""What a pass asks of Azure, call by call, on our model of it: 60 machines in two regions.

The model counts; it never was Azure. The floor is two listings, of tags and of power, whatever the number of regions,
and one deallocation per machine that is stopped: Azure Resource Manager has none for many.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.values.times import epoch_text
from tests.cli.azure_line import CONFIG, REGIONS
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.azure.others import made

__all__ = ["azure_arm", "azure_process"]
MANY = 60


class Account:
    """Machines of one ledger, and the calls that are made about them."""

    def __init__(self, home, azure):
        self.azure = azure
        (home / "config.toml").write_text(CONFIG)
        self.session = open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"})
        self.session.clock = azure.clock.now
        self.session.pause = azure.advance
        sync_all(self.session)  # it makes the ledger, whose id the tags bear
        self.machines = {f"cg-{number}": self.one(number) for number in range(MANY)}

    def one(self, number):
        tags = {"id": f"cg-{number}", "name": f"n{number}", "key": f"k{number}", "ledger": self.session.ledger.id}
        tags |= {"owner": "ada", "project": "lab", "policy": "default", "seq": "1"}
        tags |= {"expires": self.later(hours=8), "renew-until": self.later(hours=72)}
        named = {f"cloudgpu-{key}": text for key, text in tags.items()}
        return made(self.azure, f"cloudgpu-{number:020x}", REGIONS[number % 2], tags=named)

    def later(self, **span):
        return epoch_text(self.azure.clock.now() + timedelta(**span))

    def tag(self, ids, **tags):
        for id_ in ids:
            named = {f"cloudgpu-{key.replace('_', '-')}": text for key, text in tags.items()}
            self.azure.resource(self.machines[id_]).body["tags"].update(named)

    def pass_(self, **wish):
        """Make a pass; return what it did, and how often each call was made."""
        begun = len(self.azure.calls)
        found = reap(self.session, ReapOptions(**wish))
        made_ = Counter(call.action for call in self.azure.calls[begun:] if not call.action.startswith("Token."))
        return found, made_

    def states(self, ids):
        return {self.azure.instance(self.machines[one]).state for one in ids}


@pytest.fixture
def account(own_home, azure_arm):
    return Account(own_home, azure_arm)


LOOK = {"VirtualMachines.ListAll": 2}


def test_a_pass_is_two_listings_and_a_stop_per_machine_with_a_second_look_and_a_proof(account):
    """By tag and age, then from inside, then with one that is ended meanwhile: machines are dear to make."""
    by_tag_and_age(account)
    from_inside(account)
    with_one_that_is_gone(account)


def by_tag_and_age(account):
    sync_all(account.session)  # it takes them up
    found, made_ = account.pass_(dry_run=True)
    assert made_ == LOOK
    over = list(account.machines)[:16]
    account.tag(over, renew_until=account.later(minutes=-1), expires=account.later(minutes=-1))
    found, made_ = account.pass_()
    assert {one.machine for one in found.ended} == set(over)
    assert made_ == {"VirtualMachines.ListAll": 2 * 3, "VirtualMachines.Deallocate": 16}
    assert account.states(over) == {"deallocated"}
    assert account.states(list(account.machines)[16:]) == {"running"}
    assert found.exit_code == 0


def from_inside(account):
    """A machine that was shut down from inside is billed on: the next pass ends that, without a word before."""
    one = list(account.machines)[20]
    account.azure.shut_down(account.machines[one])
    found, made_ = account.pass_()
    assert [end.machine for end in found.ended] == [one]
    assert made_ == {"VirtualMachines.ListAll": 2, "VirtualMachines.Get": 2, "VirtualMachines.Deallocate": 1}
    assert account.states([one]) == {"deallocated"}


def with_one_that_is_gone(account):
    over = list(account.machines)[30:36]
    account.tag(over, renew_until=account.later(minutes=-1), expires=account.later(minutes=-1))
    group = account.machines[over[2]].partition("/")[2]

    def gone(_number, action, phase):
        if action == "VirtualMachines.Deallocate" and phase == "before":
            account.azure.on_call = None
            with account.azure.lock:
                for key in [key for key, thing in account.azure.model.resources.items() if thing.group == group]:
                    account.azure.model.drop(key)

    account.azure.on_call = gone
    found, made_ = account.pass_()
    assert {one.machine for one in found.ended} == set(over)
    assert made_["VirtualMachines.Deallocate"] == len(over)
    assert account.states(one for one in over if one != over[2]) == {"deallocated"}
