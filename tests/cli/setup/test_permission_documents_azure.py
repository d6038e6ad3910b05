"""Every call that cloudgpu makes at Azure is allowed by the document of its use, and no document allows more.

Commands run against our model of Azure, which refuses what the caller's roles do not allow, and writes down the
operation of each call, with those of what a call makes in its group. What Azure itself asks for is not proved here.
"""

from __future__ import annotations

import json
import os

import pytest

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.control.outage import opening as sessions
from cloudgpu.providers.azure.account.permissions import PROBES
from tests.cli.azure_line import CONFIG, Line
from tests.cli.line import on_time_of
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.azure.model import SUBSCRIPTION
from tests.clouds.azure.sdk import Sdk
from tests.providers.azure import launched

__all__ = ["azure_arm", "azure_process"]
NAMES = ("azure-init", "azure-launch", "azure-machine", "azure-read", "azure-reap", "azure-watch")
UP = "up --yes --no-wait --template bare --ssh-from 198.51.100.7/32 --region eastus"
# What the launcher is given beside its document, under a condition: to give and take the role of machines.
GIVES = {f"Microsoft.Authorization/roleAssignments/{one}" for one in ("write", "delete")}
# Actions that are no call of ours: Azure takes them where the PUT of a machine makes its interface and its address.
IMPLIED = {f"Microsoft.Network/{one}/join/action" for one in ("networkInterfaces", "publicIPAddresses")}


def document(name):
    return json.loads((data_dir("policies") / "permissions" / f"{name}.json").read_text())


def allowed(name):
    return set(document(name)["Actions"])


class User(Line):
    """Somebody whose credential has what documents allow; every command has to go through."""

    def under(self, *names, also=()):
        self.azure.model.permissions = [{"actions": [*document(name)["Actions"], *also]} for name in names]
        self.azure.model.used.clear()

    def do(self, words, code=0):
        said = self(words)
        assert said.code == code, (words, said.out, said.err)
        return said

    def used(self):
        return {permission for permission, _ in self.azure.model.used}

    def prepared(self):
        """Let an administrator prepare the subscription."""
        self.do("init azure --account lab --yes")

    def evicted(self):
        """Let Azure take the spot machine."""
        (one,) = (one for one in self.azure.instances(live=True) if one.spot)
        self.azure.interrupt(one.id)

    def shared(self):
        """Let a colleague in, and out again, as `share` does."""
        keeper = sessions.open_session(os.environ).provider("lab")
        for cidr in ("198.51.100.9/32", None):
            keeper.allow(self.azure.instances(live=True)[0].id, "cg-1.ben", cidr)

    def locked(self, name):
        """Let somebody lock a machine: it is stopped in place of its end, until the lock is lifted."""
        (one,) = (one for one in self.azure.instances(live=True) if one.tags["cloudgpu-name"] == name)
        self.azure.protect(one.id)
        self.do(f"down {name} --yes", code=9)
        self.azure.model.locks.clear()

    def joined(self):
        """Let somebody put a disk of their own into a launch's group: that one is not deleted as a whole then."""
        model, group = self.azure.model, self.azure.instances(live=True)[0].group
        before, used = model.permissions, list(model.used)
        model.permissions = [{"actions": ["*"]}]
        disk = {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}
        disks = Sdk(self.azure).compute.disks
        disks.begin_create_or_update(group, "mine", {"location": "eastus", "properties": disk}).result()
        model.permissions, model.used = before, used

    def trust(self):
        """Let the disks of machines be those of machines with Trusted Launch."""
        for disk in self.azure.resources("Microsoft.Compute/disks"):
            self.azure.model.get(disk).facts["securityProfile"] = {"securityType": "TrustedLaunch"}

    def gallery_image(self, name, tags):
        """Let there be an image in the gallery, of a machine that is gone."""
        launched.launch(Sdk(self.azure), launched.OTHER, ledger=tags["cloudgpu-ledger"])
        self.trust()
        keeper = sessions.open_session(os.environ).provider("lab")
        while not keeper.save_image(f"eastus/{launched.OTHER}", name, tags).id.endswith(f"{name}.eastus"):
            self.azure.advance(60)
        self.azure.advance(600)
        keeper.save_image(f"eastus/{launched.OTHER}", name, tags)
        Sdk(self.azure).resources.resource_groups.begin_delete(launched.OTHER).result()

    def left_behind(self):
        """Let there be what crashes leave, and clean up a day later; nothing that costs is left then."""
        model, tags = self.azure.model, {"cloudgpu-ledger": sessions.open_session(os.environ).ledger.id}
        before = model.permissions
        model.permissions = [{"actions": ["*"]}]
        used = list(model.used)
        launched.without_machine(self.azure, Sdk(self.azure), tags["cloudgpu-ledger"])
        self.gallery_image("left", tags)
        disk = {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}
        compute, body = Sdk(self.azure).compute, {"location": "eastus", "tags": tags}
        compute.disks.begin_create_or_update("cloudgpu", "d", {**body, "properties": disk}).result()
        of = self.azure.resources("Microsoft.Compute/disks")[-1]
        copy = {"creationData": {"createOption": "Copy", "sourceResourceId": of}}
        compute.snapshots.begin_create_or_update("cloudgpu", "s", {**body, "properties": copy}).result()
        of = {"osType": "Linux", "osState": "Generalized", "snapshot": {"id": of.replace("disks/d", "snapshots/s")}}
        image = {"storageProfile": {"osDisk": of}}
        compute.images.begin_create_or_update("cloudgpu", "i", {**body, "properties": image}).result()
        model.permissions, model.used = before, used
        self.azure.advance(86_400)
        self.do("orphans --clean --yes")
        assert self.azure.billable() in ([], [("disk", "mine")])

    def subnet(self):
        """Return a subnet of the subscription's own."""
        network = {"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}}
        network["properties"]["subnets"] = [{"name": "inside", "properties": {"addressPrefix": "10.0.0.0/24"}}]
        sdk = Sdk(self.azure)
        sdk.group("theirs")
        sdk.network.virtual_networks.begin_create_or_update("theirs", "net", network).result()
        home = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/theirs/providers/Microsoft.Network"
        return f"{home}/virtualNetworks/net/subnets/inside"


@pytest.fixture
def user(own_home, capsys, azure_arm, monkeypatch):
    on_time_of(monkeypatch, azure_arm)
    made = User(own_home, capsys, azure_arm)
    azure_arm.serve_ssh()
    made.config(f"{CONFIG}ssh_port = {azure_arm.ssh_port}\n")
    return made


def look(user, subnet):
    """All that reads."""
    user.do("ls --refresh")
    plan = "up --dry-run --gpu t4 --ssh-from 198.51.100.7/32 --region eastus"
    user.do(plan)
    user.do(f"{plan} --spot")
    user.do(f"{plan} --subnet {subnet}")
    user.do("up --dry-run --gpu t4 --ssh-from 198.51.100.7/32 --region eastusx", code=2)
    user.do("quota --region eastus")
    user.do("regions --gpu t4")
    user.do("orphans")
    user("doctor")


def test_the_documents_are_custom_roles_that_azure_takes():
    """The shape is that of `az role definition create`; nothing is left to a wildcard."""
    for name in NAMES:
        body = document(name)
        assert set(body) == {
            "Name", "IsCustom", "Description", "Actions", "NotActions", "DataActions", "NotDataActions",
            "AssignableScopes",
        }  # fmt: skip
        assert body["IsCustom"] is True
        assert body["Actions"] == sorted(set(body["Actions"]))
        assert not [action for action in body["Actions"] if "*" in action]
        assert body["AssignableScopes"] == ["/subscriptions/00000000-0000-0000-0000-000000000000"]


def test_doctor_asks_for_what_the_document_of_launching_has():
    assert {probe.action for probe in PROBES} == allowed("azure-launch") | GIVES


def test_a_document_of_fewer_uses_allows_nothing_that_launching_does_not():
    assert allowed("azure-read") | allowed("azure-reap") <= allowed("azure-launch")
    others = {one for one in allowed("azure-read") if not one.endswith("/read")}
    assert others == {"Microsoft.ComputeSchedule/locations/virtualMachinesGetOperationStatus/action"}


def test_nobody_who_launches_may_give_rights_at_will():
    for name in ("azure-launch", "azure-reap", "azure-read", "azure-machine", "azure-watch"):
        assert not allowed(name) & GIVES


@pytest.mark.soak
def test_reading_needs_its_document_and_no_more(user):
    user.prepared()
    user.do(f"{UP} --name fox --gpu t4 --spot")
    user.evicted()
    user.gallery_image("kept", {"cloudgpu-ledger": "led-other"})
    subnet = user.subnet()
    user.under("azure-read")
    look(user, subnet)
    assert user.used() == allowed("azure-read")


def test_launching_and_all_that_follows_needs_its_document_and_no_more(user):
    user.prepared()
    subnet = user.subnet()
    user.under("azure-launch", also=GIVES)
    user.do(f"{UP} --name fox --gpu t4 --volume data:20")
    for words in ("stop fox", "start fox", "extend fox 20h", "hold fox 1h"):
        user.do(f"{words} --yes")
    user.do("allow fox --from 198.51.100.8/32")
    user.shared()
    user.do("image save fox --name mine --yes")
    user.do("reap --nightly")
    user.trust()
    user.do("image save fox --name yours --yes")
    user.do("down fox --yes")
    user.do(f"{UP} --name elk --gpu t4 --spot --image mine")
    user.do("spot rehearse elk --yes")
    user.azure.advance(120)
    user.do("ls --refresh")
    user.do("start elk --yes")
    user.joined()
    user.do("down elk --yes")
    user.do(f"{UP} --name owl --instance-type Standard_NV6ads_A10_v5")  # needs a driver that an extension brings
    user.locked("owl")
    user.do("down owl --yes")
    user.do("image rm mine --yes")
    user.do("image rm yours --yes")
    user.do("volume rm data --yes")
    user.do("quota --request lowPriorityCores=9000 --region eastus --yes")
    user.left_behind()
    look(user, subnet)
    assert sorted(user.used() - allowed("azure-launch") - GIVES) == []
    assert " ".join(sorted(allowed("azure-launch") - user.used() - IMPLIED)) == ""


@pytest.mark.soak
def test_a_watcher_of_jobs_needs_its_document_and_no_more(user):
    """It launches, starts, stops and ends machines, with a volume that is there; it makes and removes nothing else."""
    user.prepared()
    subnet = user.subnet()
    user.do(f"{UP} --name hen --gpu t4 --volume data:20")
    user.do("down hen --yes")
    user.gallery_image("kept", {"cloudgpu-ledger": "led-other"})
    user.under("azure-watch", also=GIVES)
    user.do(f"{UP} --name fox --gpu t4 --volume data")
    user.do("extend fox 80h --yes")
    user.do("allow fox --from 198.51.100.8/32")
    for verb in ("stop", "start"):
        user.do(f"{verb} fox --yes")
    user.do("reap --nightly")
    user.joined()
    user.do("down fox --yes")
    user.do(f"{UP} --name elk --gpu t4 --spot")
    user.evicted()
    user.do("ls --refresh")
    user.do("start elk --yes")
    user.do("down elk --yes")
    user.do(f"{UP} --name owl --instance-type Standard_NV6ads_A10_v5")
    user.locked("owl")
    user.do("down owl --yes")
    look(user, subnet)
    assert sorted(user.used() - allowed("azure-watch") - GIVES) == []
    assert " ".join(sorted(allowed("azure-watch") - user.used() - IMPLIED)) == ""


# What a watcher lacks: it makes and removes no disk or image, removes nothing by itself, and asks for no quota.
NOT_OF_A_WATCHER = set(
    """
    Microsoft.Compute/disks/delete
    Microsoft.Compute/galleries/images/delete
    Microsoft.Compute/galleries/images/versions/delete
    Microsoft.Compute/galleries/images/versions/write
    Microsoft.Compute/galleries/images/write
    Microsoft.Compute/galleries/read
    Microsoft.Compute/galleries/write
    Microsoft.Compute/images/delete
    Microsoft.Compute/images/write
    Microsoft.Compute/snapshots/delete
    Microsoft.Compute/snapshots/write
    Microsoft.Compute/virtualMachines/simulateEviction/action
    Microsoft.Network/networkInterfaces/delete
    Microsoft.Network/networkSecurityGroups/securityRules/delete
    Microsoft.Network/publicIPAddresses/delete
    Microsoft.Quota/quotas/write
    """.split()
)


def test_a_watcher_may_what_launching_does_but_for_what_is_listed():
    assert allowed("azure-launch") ^ allowed("azure-watch") == NOT_OF_A_WATCHER


def test_init_needs_its_document_and_no_more(user):
    user.under("azure-init")
    user.azure.model.providers["Microsoft.ComputeSchedule"] = "NotRegistered"
    user.do("init azure --account lab --budget 300 --email ada@example.org --yes")
    used = user.used()
    user.under("azure-launch", also=GIVES)
    user.do(f"{UP} --name fox --gpu t4")
    user.under("azure-init")
    assert "fox of ada" in user.do("init azure --account lab --remove --yes", code=2).err
    user.under("azure-launch", also=GIVES)
    user.do("stop fox --yes")
    assert user.azure.model.assignments != {}
    user.under("azure-init")
    user.do("init azure --account lab --remove --yes")
    assert user.azure.model.assignments == {}
    assert used | user.used() == allowed("azure-init")


# What launching needs beyond what reaping does.
LAUNCHING_ALONE = set(
    """
    Microsoft.Compute/disks/write
    Microsoft.Compute/galleries/images/versions/write
    Microsoft.Compute/galleries/images/write
    Microsoft.Compute/galleries/read
    Microsoft.Compute/galleries/write
    Microsoft.Compute/images/write
    Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read
    Microsoft.Compute/locations/usages/read
    Microsoft.Compute/skus/read
    Microsoft.Compute/snapshots/write
    Microsoft.Compute/virtualMachines/attachDetachDataDisks/action
    Microsoft.Compute/virtualMachines/extensions/write
    Microsoft.Compute/virtualMachines/simulateEviction/action
    Microsoft.Compute/virtualMachines/start/action
    Microsoft.Compute/virtualMachines/write
    Microsoft.Network/networkInterfaces/join/action
    Microsoft.Network/networkInterfaces/write
    Microsoft.Network/networkSecurityGroups/join/action
    Microsoft.Network/networkSecurityGroups/securityRules/delete
    Microsoft.Network/networkSecurityGroups/securityRules/write
    Microsoft.Network/networkSecurityGroups/write
    Microsoft.Network/publicIPAddresses/join/action
    Microsoft.Network/publicIPAddresses/write
    Microsoft.Network/virtualNetworks/read
    Microsoft.Network/virtualNetworks/subnets/join/action
    Microsoft.Network/virtualNetworks/write
    Microsoft.Quota/quotas/write
    Microsoft.Resources/subscriptions/locations/read
    Microsoft.Resources/subscriptions/resourceGroups/write
    """.split()
)


def test_the_document_of_reaping_lacks_nothing_but_what_launches_alone_need():
    assert allowed("azure-launch") - allowed("azure-reap") == LAUNCHING_ALONE


@pytest.mark.soak
def test_reaping_needs_its_document_and_no_more(user):
    user.prepared()
    user.do(f"{UP} --name fox --gpu t4 --volume data:20")
    user.do(f"{UP} --name elk --gpu t4 --spot")
    user.evicted()
    user.under("azure-reap", also=GIVES)
    user.do("reap --nightly")
    user.do("stop fox --yes")
    user.do("extend fox 80h --yes")
    user.joined()
    user.locked("fox")
    user.do("down --all --yes")
    user.do("volume rm data --yes")
    user.left_behind()
    user("doctor")
    assert sorted(user.used() - allowed("azure-reap") - GIVES) == []
    assert " ".join(sorted(allowed("azure-reap") - user.used())) == ""
