"""Every call that cloudgpu makes at Google is granted by the document of its use, and no document grants more.

Calls are captured from real runs of the command line against our model, which holds each to the permissions that
Google's reference names for it. What Google itself asks for is not proved here.
"""

from __future__ import annotations

import json
import os

import pytest

from cloudgpu.cli.app import run
from cloudgpu.config.files.user_files import data_dir
from cloudgpu.control.outage import opening as sessions
from cloudgpu.providers.gcp.account.permissions import ACTIONS
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.clouds.gcp.model import Key
from tests.clouds.gcp.permissions import needed
from tests.clouds.gcp.plain import PROJECT, ZONE

__all__ = ["gcp", "gcp_process"]
NAMES = ("gcp-launch", "gcp-read", "gcp-reap", "gcp-watch")
UP = ("up", "--yes", "--no-wait", "--template", "bare", "--ssh-from", "198.51.100.7/32", "--zone", ZONE)
READING = ("get", "list")
READ = (".get", ".list", ".getFromFamily")
MOST = 3000  # permissions of a custom role (IAM, "Quotas and limits")


def document(name):
    return json.loads((data_dir("policies") / "permissions" / f"{name}.json").read_text())


def granted(name):
    return set(document(name)["includedPermissions"])


class User:
    """A user of the model whose credential has what a document grants."""

    def __init__(self, server, home, monkeypatch):
        self.server, self.home = server, home
        server.serve_ssh()
        on_time_of(monkeypatch, server)
        self.config()

    def config(self, more=""):
        usual = f'owner = "ada"\nprovider = "gcp"\naddress_services = []\n[accounts.gcp]\n{more}\n'
        (self.home / "config.toml").write_text(f"{usual}ssh_port = {self.server.ssh_port}\n")

    def under(self, name):
        self.server.model.granted = granted(name)

    def used(self):
        """Return the permissions that the calls so far took."""
        return set[str]().union(*(needed(call) for call in self.server.calls))

    def do(self, *words, code=0):
        assert code in (None, run(list(words))), words

    def one_zone_is_silent(self):
        """Let the next list of all zones' operations fail as a whole."""
        self.server.faults.add("compute.globalOperations.aggregatedList", status=503)

    def disk_stays(self, name):
        """Let there be a disk of a machine that does not go with it."""
        machine = sessions.open_session(os.environ).find(name)
        labels = machine_labels(self.server, machine.provider_id)
        key = Key("disks", PROJECT, f"zones/{ZONE}", f"{machine.provider_id.rpartition('/')[2]}-more")
        self.server.model.add(key, {"labels": labels, "status": "READY"})

    def left_behind(self):
        """Let there be an address, a disk and images that nobody uses; clean up a day later."""
        ledger = {"cloudgpu-ledger": sessions.open_session(os.environ).ledger.id}
        add = self.server.model.add
        add(Key("addresses", PROJECT, "regions/us-central1", "kept"), {"labels": ledger, "users": []})
        for sort in ("disks", "images", "snapshots", "machineImages"):
            scope = f"zones/{ZONE}" if sort == "disks" else "global"
            add(Key(sort, PROJECT, scope, "kept"), {"labels": ledger, "status": "READY"})
        self.server.advance(86_400)
        self.do("orphans", "--clean", "--yes")
        assert self.server.billable() == []


def machine_labels(server, machine):
    return dict(server.instance(machine)["labels"])


@pytest.fixture
def user(gcp, own_home, monkeypatch):
    return User(gcp, own_home, monkeypatch)


def look(user):
    """All that reads."""
    user.do("ls", "--refresh")
    plan = ("up", "--dry-run", "--gpu", "t4", "--ssh-from", "198.51.100.7/32")
    user.do(*plan, "--spot", "--zone", ZONE)
    user.do(*plan, "--zone", "us-central1-z", code=2)  # the zones that there are, are named
    user.do(*plan, "--subnet", "default")
    user.do(*plan, "--image", "nowhere", code=2)
    user.do("up", "--dry-run", "--gpu", "t4", "--no-public-ip", "--jump", "ada@bastion", "--zone", ZONE)
    user.do("quota", "--region", "us-central1")
    user.do("regions", "--gpu", "t4")
    user.do("orphans")
    user.do("doctor", code=None)


def test_launching_and_all_that_follows_needs_its_document_and_no_more(user):
    user.under("gcp-launch")
    user.do(*UP, "--name", "fox", "--gpu", "t4", "--volume", "data:20")
    user.server.advance(7200)
    user.do("reap")  # asks the machine when it was last in use
    for words in (["stop"], ["start"], ["extend", "20h"], ["hold", "1h"]):
        user.do(words[0], "fox", *words[1:], "--yes")
    user.do("allow", "fox", "--from", "198.51.100.8/32")
    user.do("image", "save", "fox", "--name", "mine", "--yes")
    user.do("down", "fox", "--yes")
    user.config('service_account = "robot@lab-1.iam.gserviceaccount.com"')
    user.do(*UP, "--name", "elk", "--gpu", "t4", "--spot", "--image", "mine")
    user.do("spot", "rehearse", "elk", "--yes")
    user.server.advance(60)
    user.do("ls", "--refresh")
    user.do("start", "elk", "--yes")
    user.do("down", "elk", "--yes")
    user.do("image", "rm", "mine", "--yes")
    user.do("volume", "rm", "data", "--yes")
    user.left_behind()
    assert user.used() - granted("gcp-launch") == set()
    assert granted("gcp-launch") - user.used() - granted("gcp-read") == set()  # what reads is tried below


@pytest.mark.soak
def test_reading_needs_its_document_and_no_more(user):
    user.do(*UP, "--name", "fox", "--gpu", "t4", "--volume", "data:20")
    user.do(*UP, "--name", "elk", "--gpu", "t4", "--spot")
    user.server.interrupt(next(one for one in user.server.instances() if "SPOT" in str(user.server.instance(one))))
    user.server.advance(7200)
    user.server.calls.clear()
    user.under("gcp-read")
    user.one_zone_is_silent()
    user.do("reap", "--dry-run")
    user.do("ls", "--refresh")
    user.do("show", "fox", "--refresh")
    user.do("up", "--dry-run", "--gpu", "t4", "--volume", "more:20", "--ssh-from", "198.51.100.7/32", "--zone", ZONE)
    look(user)
    assert user.used() - granted("gcp-read") == set()
    assert granted("gcp-read") - user.used() == set()


# What launching needs beyond what reaping does.
LAUNCHING_ALONE = set(
    """
    compute.instances.simulateMaintenanceEvent
    compute.acceleratorTypes.list
    compute.disks.create
    compute.disks.get
    compute.disks.setLabels
    compute.disks.use
    compute.disks.useReadOnly
    compute.firewalls.create
    compute.firewalls.get
    compute.firewalls.update
    compute.images.create
    compute.images.get
    compute.images.getFromFamily
    compute.images.setLabels
    compute.images.useReadOnly
    compute.instances.attachDisk
    compute.instances.create
    compute.instances.setScheduling
    compute.instances.setServiceAccount
    compute.instances.setTags
    compute.instances.start
    compute.machineTypes.get
    compute.networks.get
    compute.projects.get
    compute.regions.get
    compute.regions.list
    compute.subnetworks.get
    compute.subnetworks.list
    compute.subnetworks.use
    compute.subnetworks.useExternalIp
    compute.zones.list
    iam.serviceAccounts.actAs
    """.split()
)


def test_the_document_of_reaping_lacks_nothing_but_what_launches_alone_need():
    assert granted("gcp-launch") - granted("gcp-reap") == LAUNCHING_ALONE


@pytest.mark.soak
def test_reaping_needs_its_document_and_no_more(user):
    user.do(*UP, "--name", "fox", "--gpu", "t4")
    user.do(*UP, "--name", "elk", "--gpu", "t4", "--spot")
    user.do(*UP, "--name", "owl", "--gpu", "t4")
    user.server.advance(7200)
    user.server.calls.clear()
    user.under("gcp-reap")
    user.do("reap", "--nightly")
    user.do("extend", "owl", "20h", "--yes")
    user.do("stop", "fox", "--yes")
    user.server.shut_down(next(one for one in user.server.instances() if "SPOT" in str(user.server.instance(one))))
    user.one_zone_is_silent()
    user.do("ls", "--refresh")
    user.do("down", "--all", "--yes")
    user.left_behind()
    user.do("ls", "--refresh")
    assert user.used() - granted("gcp-reap") == set()
    assert granted("gcp-reap") - user.used() == set()


@pytest.mark.soak
def test_a_watcher_of_jobs_needs_its_document_and_no_more(user):
    """It launches, starts, stops and ends machines, with a volume that is there; it makes and removes nothing else."""
    user.do(*UP, "--name", "hen", "--gpu", "t4", "--volume", "data:20")
    user.do("down", "hen", "--yes")
    user.server.calls.clear()
    user.under("gcp-watch")
    user.config('service_account = "robot@lab-1.iam.gserviceaccount.com"')
    user.do(*UP, "--name", "fox", "--gpu", "t4", "--volume", "data")
    user.server.advance(7200)
    user.do("reap")  # asks the machine when it was last in use
    user.do("extend", "fox", "20h", "--yes")
    user.do("allow", "fox", "--from", "198.51.100.8/32")
    for verb in ("stop", "start"):
        user.do(verb, "fox", "--yes")
    user.disk_stays("fox")
    user.do("down", "fox", "--yes")
    user.do(*UP, "--name", "elk", "--gpu", "t4", "--spot")
    user.server.interrupt(user.server.instances(live=True)[0])
    user.one_zone_is_silent()
    user.do("ls", "--refresh")
    user.do("start", "elk", "--yes")
    user.do("down", "elk", "--yes")
    look(user)
    assert sorted(user.used() - granted("gcp-watch")) == []
    assert " ".join(sorted(granted("gcp-watch") - user.used())) == ""
    assert set(changed(user)) == {"cg"}  # as the condition in docs/permissions.md has it


def changed(user):
    """Return how the names of the machines and disks begin that were changed."""
    for call in user.server.calls:
        kind, _, verb = call.action.removeprefix("compute.").partition(".")
        if kind in ("instances", "disks") and not verb.startswith((*READING, "aggregatedList")):
            name = call.where.get(kind.removesuffix("s")) or call.body["name"]
            yield name.partition("-")[0]


# What a watcher lacks: it makes and removes no image, and removes no disk or address by itself.
NOT_OF_A_WATCHER = set(
    """
    compute.addresses.delete
    compute.disks.useReadOnly
    compute.images.create
    compute.images.delete
    compute.images.setLabels
    compute.instances.simulateMaintenanceEvent
    compute.machineImages.delete
    compute.regionOperations.get
    compute.snapshots.delete
    """.split()
)


def test_a_watcher_may_what_launching_does_but_for_what_is_listed():
    assert granted("gcp-launch") ^ granted("gcp-watch") == NOT_OF_A_WATCHER
    assert not [one for one in granted("gcp-watch") if "mages." in one and not one.endswith((*READ, "useReadOnly"))]


def test_doctor_asks_for_what_the_document_of_launching_has():
    assert {one.action for one in ACTIONS} == granted("gcp-launch")


def test_a_document_of_fewer_uses_grants_nothing_that_launching_does_not():
    assert granted("gcp-read") | granted("gcp-reap") <= granted("gcp-launch")
    assert all(one.rpartition(".")[2].startswith(READING) for one in granted("gcp-read"))


@pytest.mark.parametrize("name", NAMES)
def test_a_document_is_a_custom_role_as_gcloud_takes_it(name):
    """Fields of a Role (IAM API, projects.roles.create), each permission once and in order."""
    found = document(name)
    assert set(found) == {"title", "description", "stage", "includedPermissions"}
    assert found["stage"] == "GA"
    assert found["includedPermissions"] == sorted(set(found["includedPermissions"]))
    assert len(found["includedPermissions"]) <= MOST
    assert len(found["title"]) <= 100
    assert len(found["description"]) <= 300
