"""Which permission a call needs, by the "IAM Permissions" that the reference of each method names.

Mostly the permission is called as the method is; what a call needs beside that, for the things that its body names,
is from the same pages. `needed` is what our model holds a caller to.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.clouds.rest import Call

# Where the permission has another word than the method.
WORDS = {"insert": "create", "aggregatedList": "list", "patch": "update", "wait": "get"}
# What some calls need beside that.
BESIDE = {
    "compute.instances.attachDisk": ("compute.disks.use",),
    "compute.instances.detachDisk": ("compute.disks.use",),
    "compute.instances.setDiskAutoDelete": ("compute.disks.update",),
    "compute.firewalls.insert": ("compute.networks.updatePolicy",),
    "compute.firewalls.patch": ("compute.networks.updatePolicy",),
    "compute.firewalls.update": ("compute.networks.updatePolicy",),
    "compute.firewalls.delete": ("compute.networks.updatePolicy",),
    "compute.disks.createSnapshot": ("compute.snapshots.create",),
    "compute.snapshots.insert": ("compute.disks.createSnapshot",),
}
FREE = ("cloudresourcemanager.", "cloudbilling.")  # testing one's permissions needs none, nor does the price list


def needed(call: Call) -> set[str]:
    """Return the permissions that a call needs."""
    if call.action.startswith(FREE) or "." not in call.action:
        return set()
    service, *kinds, method = call.action.split(".")
    own = f"{service}.{'.'.join(kinds)}.{WORDS.get(method, method)}"
    return {own, *_beside(call)}


def _beside(call: Call) -> Iterator[str]:
    body = call.body if isinstance(call.body, dict) else {}
    if call.action == "compute.instances.insert":
        yield from _of_launch(body)
    if call.action == "compute.images.insert":
        yield "compute.disks.useReadOnly" if "sourceDisk" in body else "compute.images.useReadOnly"
    yield from BESIDE.get(call.action, ())
    if body.get("labels") and call.action.endswith((".insert", "createSnapshot")):
        kind = "snapshots" if call.action.endswith("createSnapshot") else call.action.split(".")[1]
        yield f"compute.{kind}.setLabels"


def _of_launch(body: dict[str, object]) -> Iterator[str]:
    for one in body.get("disks") or []:  # type: ignore[attr-defined]
        params = one.get("initializeParams") or {}
        if one.get("type") == "SCRATCH" or not params:
            yield "compute.disks.use" if "source" in one else "compute.disks.create"
            continue
        yield "compute.disks.create"
        if params.get("labels"):
            yield "compute.disks.setLabels"
        if params.get("sourceImage"):
            yield "compute.images.useReadOnly"
    for one in body.get("networkInterfaces") or []:  # type: ignore[attr-defined]
        yield "compute.subnetworks.use"
        if one.get("accessConfigs"):
            yield "compute.subnetworks.useExternalIp"
    for name, permission in (
        ("metadata", "setMetadata"),
        ("tags", "setTags"),
        ("serviceAccounts", "setServiceAccount"),
    ):
        if body.get(name):
            yield f"compute.instances.{permission}"
    if body.get("serviceAccounts"):
        yield "iam.serviceAccounts.actAs"
