"""What tests do to our model of Azure, and ask of it: an independent look, apart from the calls that the SDKs make.

A machine is named as our program names it, `REGION/GROUP`, or by its group.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from tests.clouds import userdata
from tests.clouds.azure import locks, networks, power, roles, tokens
from tests.clouds.azure.model import ADDRESSES, DISKS, MACHINES, SUBSCRIPTION, Model, Thing, group_id, machine_id
from tests.clouds.clock import Clock
from tests.clouds.rest_faults import FOREVER, Fault, Faults
from tests.clouds.ssh import Machine, Machines


@dataclass(frozen=True)
class Seen:
    """A machine as tests look at it: `id` is ours, `REGION/GROUP`; `state` is that of its power."""

    id: str
    group: str
    region: str
    state: str
    size: str
    spot: bool
    tags: dict[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    provisioning: str = "Succeeded"


class Looks:
    """The part of the server that tests talk to; what is declared here is the server's own."""

    model: Model
    clock: Clock
    faults: Faults
    lock: threading.RLock
    url: str
    port: int
    _ssh_port: int
    _machines: Machines | None

    def machine_token(self, machine: str) -> str:
        """Return the token of a machine's own identity, as its metadata service would give it."""
        return f"{tokens.TOKEN}{self.resource(machine).body['identity']['principalId']}"

    def may(self, machine: str, permission: str, target: str) -> bool:
        """Say whether a machine's own identity may do something to a machine."""
        principal = self.resource(machine).body.get("identity", {}).get("principalId", "nobody")
        return roles.may(self.model, principal, permission, self.resource(target).id)

    def resource(self, machine: str) -> Thing:
        """Return the model's own record of a machine. Raises KeyError when there is none."""
        group = machine.rpartition("/")[2].lower()
        found = [one for one in self.model.of_kind(MACHINES) if group in {one.group, one.name.lower()}]
        if not found:
            raise KeyError(machine)
        return found[0]

    def instances(self, *, live: bool = False) -> list[Seen]:
        """Return the machines; `live` are those that were made and are not on their way out."""
        with self.lock:
            self.clock.settle()
            found = [self._seen(one) for one in self.model.of_kind(MACHINES)]
        return [one for one in found if not live or (one.state and one.provisioning != "Deleting")]

    def instance(self, machine: str) -> Seen:
        with self.lock:
            self.clock.settle()
            return self._seen(self.resource(machine))

    def _seen(self, thing: Thing) -> Seen:
        group = self.model.group_of(thing.id)
        name = group.name if group else thing.group
        return Seen(
            f"{thing.region}/{name}",
            name,
            thing.region,
            thing.hidden["power"],
            thing.facts["hardwareProfile"]["vmSize"],
            thing.facts.get("priority") == "Spot",
            dict(thing.tags),
            tuple(networks.addresses(self.model, self._interfaces(thing))),
            thing.facts["provisioningState"],
        )

    def _interfaces(self, thing: Thing) -> list[Thing]:
        rows = thing.facts["networkProfile"]["networkInterfaces"]
        known = [self.model.resources.get(row["id"].lower()) for row in rows]
        return [one for one in known if one is not None]

    def billable(self) -> list[tuple[str, str]]:
        """Return what costs money now, by kind and name: an independent look, for tests that nothing is left."""
        with self.lock:
            self.clock.settle()
            return sorted((word, one.name) for one in self.model.resources.values() if (word := _costs(one)))

    def resources(self, kind: str = "") -> list[str]:
        """Return the ids of all there is, or of a kind (`Microsoft.Network/networkInterfaces`)."""
        with self.lock:
            self.clock.settle()
            return [one.id for one in self.model.resources.values() if not kind or one.kind == kind]

    def allows(self, machine: str, address: str, port: int) -> bool:
        """Say whether somebody at an address gets to a port of a machine."""
        with self.lock:
            found = self._interfaces(self.resource(machine))
            return any(networks.allows(self.model, one, address, port) for one in found)

    def reaches(self, source: str, target: str, port: int) -> bool:
        """Say whether one machine gets to a port of another by its private address."""
        with self.lock:
            ends = [self._interfaces(self.resource(one)) for one in (source, target)]
            return any(networks.reaches(self.model, one, other, port) for one in ends[0] for other in ends[1])

    def interrupt(self, machine: str) -> None:
        """Evict a spot machine as its policy says; the notice is over."""
        with self.lock:
            self.clock.settle()
            power.evict(self.model, self.resource(machine))

    def shut_down(self, machine: str) -> None:
        """Shut a machine down from inside: it stays allocated."""
        with self.lock:
            self.clock.settle()
            power.shut_down(self.model, self.resource(machine))

    def finish(self, what: str) -> None:
        """End the operation on a machine or a group, which are called alike: on the machine first."""
        with self.lock:
            group = what.rpartition("/")[2]
            for id_ in (machine_id(group), group_id(group), what):
                if self.clock.when(f"operation:{id_.lower()}") is not None:
                    self.clock.hurry(f"operation:{id_.lower()}")
                    return
            raise KeyError(what)

    def user_data(self, machine: str) -> list[userdata.Part]:
        """Return the parts of what a machine was given at its launch."""
        return userdata.parts(self.resource(machine).hidden["custom_data"])

    def quota(self, region: str, name: str, limit: int) -> None:
        """Set a limit: `cores`, `lowPriorityCores`, a family."""
        self.model.quotas[region, name] = limit

    def restrict(self, size: str, region: str, zone: str = "") -> None:
        """Withhold a size from this account in a region or a zone."""
        self.model.restrictions.append((size, region, zone))

    def protect(self, machine: str, *, on: str = "group", level: str = "CanNotDelete", name: str = "keep") -> str:
        """Lock a machine, its group or the subscription (`on`); return the lock's id."""
        with self.lock:
            group = machine.rpartition("/")[2]
            scope = {"machine": machine_id(group), "group": group_id(group)}.get(on, f"/subscriptions/{SUBSCRIPTION}")
            return locks.put(self.model, scope, name, level)

    def fail(self, action: str, error: str, *, message: str = "", times: int = 1, **where: Any) -> Fault:
        """Let operations of a call fail after it was accepted; `where` may name size, region, zone, market, group."""
        return self.faults.put(Fault("operation", action, where, times, error, 0, message))

    def stockout(self, *, error: str = "AllocationFailed", times: int = FOREVER, **where: Any) -> list[Fault]:
        """Let there be no capacity: creates and starts are accepted and fail in their operation."""
        calls = ("VirtualMachines.CreateOrUpdate", "VirtualMachines.Start")
        return [self.fail(one, error, times=times, **where) for one in calls]

    @property
    def ssh_port(self) -> int:
        """The port of SSH on every machine."""
        return self._ssh_port or self.port

    def serve_ssh(self) -> Machines:
        """Let machines answer SSH from now on until the next reset, at their own addresses."""
        if self._machines is None:
            self._machines = Machines(self.url, self.ssh_port)
        self.model.watchers.append(self._follow)
        return self._machines

    def _follow(self, thing: Thing) -> None:
        assert self._machines is not None
        seen = self._seen(thing)
        gone = thing.id.lower() not in self.model.resources
        given = userdata.cloud_config(userdata.parts(thing.hidden["custom_data"]))
        state = "terminated" if gone else seen.state
        self._machines.watch(Machine(seen.id, state, given, list(seen.addresses)))


def _costs(one: Thing) -> str:
    if one.kind == MACHINES:
        return "machine" if one.hidden["power"] in power.BILLED else ""
    words = {
        DISKS: "disk",
        ADDRESSES: "address",
        "Microsoft.Compute/snapshots": "snapshot",
        "Microsoft.Compute/images": "image",
        "Microsoft.Compute/galleries/images/versions": "version",
    }
    return words.get(one.kind, "")
