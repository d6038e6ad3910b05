"""Lists every permission that cloudgpu uses at Google Cloud, and reads which of them a credential has.

The documents in policies/permissions grant these and no others: a test compares them both ways. Which permissions a
call needs: the section "IAM Permissions" of each method in the reference of the Compute Engine API.

`projects.testIamPermissions` of the Cloud Resource Manager API, v3, returns which permissions a credential has: one
call for the project. It takes up to 100 permissions, and refuses all of a call in which it does not know one: such a
call is halved until that one is alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from cloudgpu.core.model.account import Permission
from cloudgpu.errors import AuthFailed, InvalidRequest
from cloudgpu.providers.gcp.client import PROVIDER, Gcp
from cloudgpu.providers.gcp.errors import is_gone
from cloudgpu.providers.gcp.market.availability import check_region
from cloudgpu.providers.shared.calls import count_request


def _action(name: str, used_for: str) -> Permission:
    return Permission(name, None, used_for)


def _optional_action(name: str, used_for: str) -> Permission:
    return Permission(name, None, used_for, needed=False)


ACT_AS = "iam.serviceAccounts.actAs"
ACTIONS = (
    _action("compute.instances.create", "launch machines"),
    _action("compute.instances.delete", "end machines"),
    _action("compute.instances.get", "see a machine"),
    _action("compute.instances.list", "see machines"),
    _action("compute.instances.setLabels", "tag machines, extend and hold a lease"),
    _action("compute.instances.setMetadata", "give machines their keys, and tell them of their lease"),
    _action("compute.instances.setTags", "let SSH in from the caller alone"),
    _action("compute.instances.start", "start machines"),
    _action("compute.instances.stop", "stop machines"),
    _action("compute.instances.setScheduling", "set the timer of a stopped machine again"),
    _optional_action("compute.instances.simulateMaintenanceEvent", "rehearse an interruption"),
    _optional_action("compute.instances.getGuestAttributes", "read when a machine was last in use, and its host keys"),
    _optional_action("compute.instances.attachDisk", "attach data volumes"),
    _optional_action("compute.instances.setServiceAccount", "give machines the service account of config.toml"),
    _optional_action(ACT_AS, "give machines the service account of config.toml"),
    _action("compute.disks.create", "launch machines with a disk"),
    _action("compute.disks.delete", "remove disks that are left"),
    _action("compute.disks.get", "see a disk"),
    _action("compute.disks.list", "see disks that are left"),
    _action("compute.disks.setLabels", "tag disks"),
    _optional_action("compute.disks.use", "attach data volumes"),
    _action("compute.disks.useReadOnly", "save images of disks"),
    _action("compute.images.create", "save images"),
    _action("compute.images.delete", "remove images"),
    _action("compute.images.get", "see an image"),
    _action("compute.images.getFromFamily", "find the image to start from"),
    _action("compute.images.list", "see images that are left"),
    _action("compute.images.setLabels", "tag images"),
    _action("compute.images.useReadOnly", "launch from your own image"),
    _action("compute.snapshots.list", "see snapshots that are left"),
    _optional_action("compute.snapshots.delete", "remove snapshots that are left"),
    _optional_action("compute.machineImages.list", "see machine images that are left"),
    _optional_action("compute.machineImages.delete", "remove machine images that are left"),
    _action("compute.firewalls.create", "let SSH in from the caller alone"),
    _action("compute.firewalls.delete", "end machines with their firewall rules"),
    _action("compute.firewalls.get", "see a firewall rule"),
    _action("compute.firewalls.list", "see who may connect"),
    _action("compute.firewalls.update", "move the caller's rule"),
    _action("compute.networks.get", "find the network"),
    _action("compute.networks.updatePolicy", "let SSH in from the caller alone"),
    _action("compute.subnetworks.get", "find the subnet"),
    _optional_action("compute.subnetworks.list", "find the region of --subnet"),
    _action("compute.subnetworks.use", "launch machines in a network"),
    _action("compute.subnetworks.useExternalIp", "launch machines with a public address"),
    _optional_action("compute.addresses.list", "see addresses that are left"),
    _optional_action("compute.addresses.delete", "remove addresses that are left"),
    _action("compute.acceleratorTypes.list", "find where a GPU is offered"),
    _action("compute.machineTypes.get", "check that a type is offered"),
    _action("compute.projects.get", "read the project's quota and metadata"),
    _action("compute.regions.get", "read a region's quota"),
    _action("compute.regions.list", "find the regions"),
    _optional_action("compute.zones.list", "name the zones that there are"),
    _action("compute.zoneOperations.get", "wait for what was asked of a zone"),
    _action("compute.globalOperations.get", "wait for what was asked of the project"),
    _optional_action("compute.regionOperations.get", "remove addresses that are left"),
    _optional_action("compute.globalOperations.list", "tell why a machine has ended"),
    _optional_action("compute.zoneOperations.list", "tell why a machine has ended, where a zone is silent"),
)


RESOURCE_MANAGER_URL = "https://cloudresourcemanager.googleapis.com"
TEST_PERMISSIONS = "cloudresourcemanager.projects.testIamPermissions"  # the call, as errors and metrics name it
MAX_PERMISSIONS_PER_CALL = 100
_FIRST_ERROR_STATUS = 400


def permissions(gcp: Gcp, region: str | None = None) -> Sequence[Permission]:
    """Return every permission that cloudgpu uses in the project, and whether this credential has it: some two calls.

    Permissions are a project's, whatever the region. None of them is known where that API is not
    enabled, or does not know the project. Raises AuthFailed for credentials that do not work at all.
    """
    if region is not None:
        check_region(gcp, region)
    reason, reasons = "Google does not know this permission here", dict[str, str]()
    try:
        verdicts = dict(_test_permissions(gcp, [one.action for one in ACTIONS]))
    except (AuthFailed, InvalidRequest) as error:
        if isinstance(error, AuthFailed) and error.field != "project":
            raise
        verdicts, reason = {}, f"{error.message} {error.next or ''}".strip()
    if verdicts.get(ACT_AS) is False:
        verdicts[ACT_AS], reasons[ACT_AS] = None, "the project does not grant it; a service account may grant it itself"
    return [
        replace(one, allowed=verdicts.get(one.action), unknown_reason=reasons.get(one.action, reason))
        if verdicts.get(one.action) is None
        else replace(one, allowed=verdicts[one.action])
        for one in ACTIONS
    ]


def _test_permissions(gcp: Gcp, names: Sequence[str]) -> Iterator[tuple[str, bool | None]]:
    """Yield whether each permission is granted; None: Google does not know it."""
    if len(names) <= MAX_PERMISSIONS_PER_CALL:
        try:
            granted = _granted(gcp, names)
        except InvalidRequest as error:
            if is_gone(error):
                raise
            if len(names) == 1:
                yield names[0], None
                return
        else:
            yield from ((name, name in granted) for name in names)
            return
    middle = len(names) // 2
    for half in (names[:middle], names[middle:]):
        yield from _test_permissions(gcp, half)


def _granted(gcp: Gcp, names: Sequence[str]) -> frozenset[str]:
    """Return which of these permissions the credential has. One call, sent once."""
    url = f"{gcp.endpoint or RESOURCE_MANAGER_URL}/v3/projects/{gcp.project}:testIamPermissions"
    credentials = gcp.credentials_for_calls()
    with gcp.translating_errors(TEST_PERMISSIONS, value=gcp.project):
        from google.api_core.exceptions import from_http_response
        from google.auth.transport.requests import AuthorizedSession

        count_request(PROVIDER, TEST_PERMISSIONS)
        with AuthorizedSession(credentials) as session:  # type: ignore[no-untyped-call]
            answer = session.post(url, json={"permissions": list(names)}, timeout=gcp.timeouts.read_s)
            if answer.status_code >= _FIRST_ERROR_STATUS:
                raise from_http_response(answer)  # type: ignore[no-untyped-call]
            answer_json: dict[str, Any] = answer.json()
    return frozenset(answer_json.get("permissions", ()))
