"""The state of our model of Azure: things by their ARM ids, operations on their way, quotas, roles, timers."""

from __future__ import annotations

import copy
import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.clouds.clock import Clock
from tests.clouds.rest import Refusal
from tests.clouds.rest_faults import Fault

# One server is one subscription.
SUBSCRIPTION = os.environ.get("CLOUDGPU_TEST_SUBSCRIPTION", "11111111-2222-4333-8444-555555555555")
TENANT = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
LAUNCHER = "0f000000-0000-4000-8000-000000000001"  # the principal whose credential the tests have
NAMES = uuid.UUID("5a9f3f6e-6a0c-4b57-9d2e-0d8f6a6a7c11")
GROUPS = "Microsoft.Resources/resourceGroups"
MACHINES = "Microsoft.Compute/virtualMachines"
DISKS = "Microsoft.Compute/disks"
ADDRESSES = "Microsoft.Network/publicIPAddresses"
INTERFACES = "Microsoft.Network/networkInterfaces"


@dataclass
class Thing:
    """One resource: `body` is what Azure shows of it, `hidden` what it does not."""

    id: str
    body: dict[str, Any]
    hidden: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = self.id.lower().split("/")
        self.name = self.id.rpartition("/")[2]
        self.group = parts[4] if len(parts) > 4 else ""  # in small letters
        self.kind = kind_of(self.id)

    @property
    def region(self) -> str:
        return str(self.body.get("location", ""))

    @property
    def tags(self) -> dict[str, str]:
        return self.body.get("tags") or {}

    @property
    def facts(self) -> dict[str, Any]:
        """Return its `properties`."""
        found: dict[str, Any] = self.body.setdefault("properties", {})
        return found


@dataclass
class Operation:
    """One long-running operation; `state` is InProgress, Succeeded, Failed or Canceled."""

    id: str
    of: str  # the id of the thing
    began: datetime
    state: str = "InProgress"
    ended: datetime | None = None
    code: str = ""
    message: str = ""
    result: Any = None  # what its `Location` answers in the end


@dataclass
class Ask:
    """One call as its handler sees it: `id` is the ARM id that its path names; `url` is where the server listens."""

    action: str
    id: str
    where: dict[str, str]
    query: dict[str, str]
    body: Any
    principal: str
    fault: Fault | None
    url: str
    path: str


@dataclass
class Model:
    """Everything that `reset` forgets."""

    clock: Clock
    resources: dict[str, Thing] = field(default_factory=dict)  # by id in small letters: Azure's ids know no capitals
    operations: dict[str, Operation] = field(default_factory=dict)
    quotas: dict[tuple[str, str], int] = field(default_factory=dict)  # by region and the name of the usage
    quota_requests: list[dict[str, Any]] = field(default_factory=list)
    restrictions: list[tuple[str, str, str]] = field(default_factory=list)  # size, region, zone or ""
    without_spot: set[str] = field(default_factory=set)  # sizes that are sold on demand alone
    locks: dict[str, dict[str, Any]] = field(default_factory=dict)  # by id in small letters
    providers: dict[str, str] = field(default_factory=dict)  # state by namespace; those not named are registered
    definitions: dict[str, Thing] = field(default_factory=dict)
    assignments: dict[str, Thing] = field(default_factory=dict)
    permissions: list[dict[str, list[str]]] = field(
        default_factory=lambda: [{"actions": ["*"], "notActions": [], "dataActions": [], "notDataActions": []}]
    )  # what the launcher may do
    roles_stay: bool = False  # do assignments outlive the thing that they are on? unverified
    timers: dict[str, dict[str, Any]] = field(default_factory=dict)  # by operation id
    timer_limit_s: float = float("inf")  # how far ahead a timer is taken: unverified
    events: list[dict[str, Any]] = field(default_factory=list)  # the activity log
    budgets: dict[str, dict[str, Any]] = field(default_factory=dict)
    used: list[tuple[str, str]] = field(default_factory=list)  # permission and scope of each call
    subscription: dict[str, Any] = field(default_factory=lambda: {"state": "Enabled", "spendingLimit": "Off"})
    leaves: frozenset[str] = frozenset({"disk", "nic"})  # what a failed create leaves beside the machine: unverified
    page: int = 1000
    operation_retry_s: int | None = None  # what Retry-After an operation says; Azure's own is some 10 s
    watchers: list[Callable[[Thing], None]] = field(default_factory=list)  # told of each change of a machine's state
    _addresses: Any = field(default_factory=lambda: itertools.count(257))
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def now(self) -> datetime:
        return self.clock.now()

    def get(self, id_: str) -> Thing:
        """Return a thing. Raises Refusal in the words of whoever misses it."""
        found = self.resources.get(id_.lower())
        if found is not None:
            return found
        parts = id_.split("/")
        if len(parts) > 4 and self.group_of(id_) is None:
            raise Refusal("ResourceGroupNotFound", f"Resource group '{parts[4]}' could not be found.")
        short = "/".join(parts[6:8]), parts[-1]
        where = f"under resource group '{parts[4]}' was not found."
        raise Refusal("ResourceNotFound", f"The Resource '{short[0]}/{short[1]}' {where}")

    def group_of(self, id_: str) -> Thing | None:
        return self.resources.get("/".join(id_.lower().split("/")[:5]))

    def living_group(self, id_: str) -> Thing:
        """Return the group into which something is put. Raises Refusal when there is none, or it is going."""
        group = self.group_of(id_)
        name = id_.split("/")[4]
        if group is None:
            raise Refusal("ResourceGroupNotFound", f"Resource group '{name}' could not be found.")
        if group.facts["provisioningState"] == "Deleting":
            sentence = f"The resource group '{name}' is in deprovisioning state and cannot perform this operation."
            raise Refusal("ResourceGroupBeingDeleted", sentence)
        return group

    def put(self, id_: str, body: dict[str, Any], **hidden: Any) -> Thing:
        """Keep a thing as Azure shows it."""
        kind = kind_of(id_)
        shown = {"id": id_, "name": id_.rpartition("/")[2], "type": kind, **copy.deepcopy(body)}
        thing = Thing(id_, shown, hidden)
        self.resources[id_.lower()] = thing
        return thing

    def drop(self, id_: str) -> None:
        """Let a thing be gone, with all that is inside it, and with the timers and roles whose scope it was."""
        for key in [key for key in self.resources if key == id_.lower() or key.startswith(f"{id_.lower()}/")]:
            del self.resources[key]
        # that assignments go with their scope is unverified; an identity's own outlive it as "unknown principal"
        gone = [key for key in self.assignments if key.startswith(f"{id_.lower()}/") and not self.roles_stay]
        for key in gone:
            del self.assignments[key]

    def of_kind(self, kind: str, group: str | None = None) -> Iterator[Thing]:
        """Yield the things of a kind, in the order in which they were made."""
        for one in list(self.resources.values()):
            if one.kind.lower() == kind.lower() and (group is None or one.group == group.lower()):
                yield one

    def address(self) -> str:
        """Return a new address, of this machine's loopback."""
        high, low = divmod(next(self._addresses), 256)
        return f"127.24.{high}.{low}"

    def uuid(self, *of: str) -> str:
        """Return a new id, the same ones in the same order after each reset."""
        return str(uuid.uuid5(NAMES, "/".join([*of, str(next(self._numbers))])))

    def log(self, id_: str, operation: str, status: str = "Succeeded") -> None:
        """Write a line of the activity log: who did what to a thing is there, and when."""
        said = {"value": operation, "localizedValue": operation}
        line = {"eventTimestamp": stamp(self.now()), "operationName": said, "status": {"value": status}}
        self.events.append({**line, "resourceId": id_, "resourceGroupName": id_.split("/")[4]})

    def tell(self, machine: Thing) -> None:
        """Tell whoever watches that a machine's state has changed."""
        for watcher in self.watchers:
            watcher(machine)


def kind_of(id_: str) -> str:
    """Return the type of an ARM id: `Microsoft.Compute/virtualMachines`."""
    if "/providers/" not in id_:
        return GROUPS
    space, *rest = id_.rpartition("/providers/")[2].split("/")
    return "/".join([space, *rest[::2]])


def stamp(at: datetime) -> str:
    """Return a time as Azure writes it: seven places of a second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "0+00:00"


def machine_id(group: str, name: str | None = None) -> str:
    """Return the ARM id of a machine that is called as its group, as ours are."""
    return f"{group_id(group)}/providers/{MACHINES}/{name or group}"


def group_id(name: str) -> str:
    """Return the ARM id of a resource group."""
    return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}"
