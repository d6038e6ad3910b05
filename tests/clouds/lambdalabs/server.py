"""Our model of Lambda Cloud's API v1 on loopback, over HTTP: machines, types with stock, SSH keys, the firewall.

The calls, their fields and the codes of errors are those of Lambda's published description (1.10) as generated clients
carry it. What calls do is our model of Lambda's documentation; it never ran against Lambda. Only believed: the answer
to too many calls, that a listing may be late, that one unknown id refuses a whole `terminate`, that `terminating` is
billed, that minutes are rounded up per machine, and that `terminated` machines leave the listing.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.clouds import ssh, userdata
from tests.clouds.lambdalabs import checks
from tests.clouds.lambdalabs.stock import REGIONS, TYPES, described
from tests.clouds.rest import Call, Refusal, Reply, Request, RestServer, Unmodelled
from tests.clouds.rest_faults import Fault

KEY = "secret_cloudgpu-tests_0123456789abcdef"
LIVE = ("booting", "active", "unhealthy", "terminating")
BILLED = ("active", "unhealthy", "terminating")
PLENTY = 100
_ROUTES = (
    ("GET", "instance-types", "types"),
    ("POST", "instance-operations/launch", "launch"),
    ("POST", "instance-operations/terminate", "terminate"),
    ("GET", "instances", "list"),
    ("GET", "instances/{id}", "get"),
    ("POST", "instances/{id}", "rename"),
    ("GET", "ssh-keys", "keys"),
    ("POST", "ssh-keys", "add-key"),
    ("DELETE", "ssh-keys/{id}", "drop-key"),
    ("GET", "firewall-rulesets/global", "global-firewall"),
    ("PATCH", "firewall-rulesets/global", "patch-global-firewall"),
)
_STATUS = {
    "global/invalid-api-key": 401,
    "global/account-inactive": 403,
    "global/invalid-address": 403,
    "global/object-does-not-exist": 404,
    "global/too-many-requests": 429,
    "global/internal-error": 500,
}
OPEN = [
    {"protocol": "icmp", "source_network": "0.0.0.0/0", "description": "Allow ICMP"},
    {"protocol": "tcp", "port_range": [22, 22], "source_network": "0.0.0.0/0", "description": "Allow SSH"},
]


@dataclass
class Machine:
    """A machine: what was asked for, its status, and when each status began."""

    id: str
    asked: Mapping[str, Any]
    ip: str
    status: str = "booting"
    cents: int = 0
    made: datetime | None = None
    active: datetime | None = None
    ended: datetime | None = None
    shut: bool = False  # from inside: it goes on being billed


@dataclass
class State:
    """All that the account has."""

    machines: dict[str, Machine] = field(default_factory=dict)
    keys: dict[str, dict[str, str]] = field(default_factory=dict)
    rules: list[dict[str, Any]] = field(default_factory=lambda: [dict(one) for one in OPEN])
    stock: dict[tuple[str, str], int] = field(default_factory=dict)
    cents: dict[str, int] = field(default_factory=dict)
    limit: int = 64  # machines


class LambdaServer(RestServer):
    """One server. `malformed` are requests that the description does not know: refused, and the test fails.

    `late_s`: a machine is in the listing and known by its id so many seconds after it was made. `rates`: calls that
    come faster than Lambda takes them are answered with 429.
    """

    def __init__(self, port: int = 0, ssh_port: int = 0) -> None:
        self._ssh_port = ssh_port
        self._machines: ssh.Machines | None = None
        super().__init__(port)

    def forget(self) -> None:
        """Begin anew: an account with nothing in it, and stock of everything everywhere."""
        super().forget()
        self.malformed: list[str] = []
        self.expects_malformed = False
        self.state = State()
        self.late_s = 0.0
        self.rates = False
        self.key = KEY
        self._ids = itertools.count(1)
        self._last: dict[str, datetime] = {}
        if self._machines is not None:
            self._machines.close_all()
        self._watching = False

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which cloudgpu talks to it."""
        return {"LAMBDA_API_KEY": self.key, "CLOUDGPU_LAMBDA_ENDPOINT": f"{self.url}/api/v1"}

    def stop(self) -> None:
        """End it, and the SSH servers of its machines."""
        if self._machines is not None:
            self._machines.end()
            self._machines = None
        super().stop()

    # What tests do to it, and ask of it.

    def instances(self, *, live: bool = False) -> list[Machine]:
        """Return the machines, or those that are there."""
        with self.lock:
            self.clock.settle()
            return [one for one in self.state.machines.values() if not live or one.status in LIVE]

    def billable(self) -> list[str]:
        """Return the ids of what costs money now."""
        return [one.id for one in self.instances() if one.status in BILLED]

    def leave(self, type_name: str, region: str, count: int) -> None:
        """Leave so many machines of a type in a region."""
        self.state.stock[type_name, region] = count

    def sell_out(self) -> None:
        """Leave nothing of anything in the stock, which `types` still shows until it is asked anew."""
        for name in TYPES:
            for region in REGIONS:
                self.state.stock[name, region] = 0

    def preempt(self, id: str) -> None:  # noqa: A002
        """Take a machine away."""
        with self.lock:
            self._become(self.state.machines[id], "preempted")

    def bill_cents(self) -> float:
        """Return what all machines have cost: each by the started minute, from active to its end."""
        return sum(self._minutes(one) * one.cents / 60 for one in self.instances())

    def minutes(self, id: str) -> int:  # noqa: A002
        """Return how many minutes of a machine are billed."""
        return self._minutes(self.state.machines[id])

    def user_data(self, id: str) -> list[userdata.Part]:  # noqa: A002
        """Return the parts of what a machine was given at its launch, for cloud-init."""
        return userdata.parts(str(self.state.machines[id].asked.get("user_data", "")).encode())

    @property
    def ssh_port(self) -> int:
        """The port of SSH on every machine."""
        return self._ssh_port or self.port

    def serve_ssh(self) -> ssh.Machines:
        """Let machines answer SSH from now on until the next reset, at their own addresses."""
        if self._machines is None:
            self._machines = ssh.Machines(self.url, self.ssh_port)
        self._watching = True
        return self._machines

    # How a request is answered.

    def read(self, request: Request) -> tuple[str, dict[str, str]]:
        """Return the call that a request is."""
        path = request.path.removeprefix("/api/v1/")
        for method, pattern, action in _ROUTES:
            found = re.fullmatch(pattern.replace("{id}", "(?P<id>[^/]+)"), path)
            if method == request.method and found:
                return action, found.groupdict()
        raise Unmodelled(f"{request.method} {request.path} is no call of Lambda's")

    def place(self, call: Call) -> Mapping[str, Any]:
        """Return the type and the region of a launch."""
        body = call.body if isinstance(call.body, dict) else {}
        return {"type": body.get("instance_type_name"), "region": body.get("region_name")}

    def answer(self, call: Call, request: Request) -> Reply:
        """Answer a call, and hold the request to the description."""
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            raise Refusal("global/invalid-api-key", "API key was invalid, expired, or deleted.")
        self._check_rate(call.action)
        wrong = checks.faults(call.action, call.query, call.body)
        if wrong:
            if not self.expects_malformed:
                self.malformed += [f"{call.action}: {one}" for one in wrong]
            raise Refusal("global/invalid-parameters", f"Invalid request data: {wrong[0]}")
        data = getattr(self, f"_{call.action.replace('-', '_')}")(call)
        if request.fault is not None and request.fault.effect == "made":
            raise Refusal(request.fault.error or "global/internal-error", "An internal error occurred.")
        return Reply(200, {"data": data})

    def fail_after(self, action: str, error: str = "global/internal-error") -> Fault:
        """Do the next call of an action, and answer it with an error all the same."""
        return self.faults.put(Fault("made", action, error=error))

    def refusal(self, call: Call, refusal: Refusal) -> Reply:
        """Return an error as Lambda says it."""
        status = refusal.status or _STATUS.get(refusal.code, 400)
        body = {"error": {"code": refusal.code, "message": refusal.message or refusal.code}}
        return Reply(status, body, error=refusal.code)

    def denial(self, call: Call) -> Refusal:
        """Return what Lambda says to a key that is none."""
        return Refusal("global/invalid-api-key", "API key was invalid, expired, or deleted.")

    def power(self, verb: str, machine: str) -> None:
        """Do what a program on a machine asked for: a shutdown ends no bill."""
        with self.lock:
            self.state.machines[machine].shut = True

    def _check_rate(self, action: str) -> None:
        if not self.rates:
            return
        now = self.clock.now()
        for name, least in (("", 1.0), *([("launch", 12.0)] if action == "launch" else [])):
            if name in self._last and (now - self._last[name]).total_seconds() < least - 0.05:
                raise Refusal("global/too-many-requests", "Too many requests.")
        self._last[""] = now
        if action == "launch":
            self._last["launch"] = now

    # The calls.

    def _types(self, _call: Call) -> dict[str, Any]:
        def regions(name: str) -> list[dict[str, str]]:
            there = [region for region in REGIONS if self.state.stock.get((name, region), PLENTY) > 0]
            return [{"name": region, "description": REGIONS[region]} for region in there]

        return {
            name: {
                "instance_type": described(name, self.state.cents.get(name)),
                "regions_with_capacity_available": regions(name),
            }
            for name in TYPES
        }

    def _launch(self, call: Call) -> dict[str, Any]:
        body = call.body
        name, region = body["instance_type_name"], body["region_name"]
        if name not in TYPES or region not in REGIONS:
            raise Refusal("global/object-does-not-exist", "Specified instance type or region does not exist.", 400)
        if body["ssh_key_names"][0] not in {one["name"] for one in self.state.keys.values()}:
            raise Refusal("global/object-does-not-exist", "Specified SSH key does not exist.", 400)
        if sum(one.status in LIVE for one in self.state.machines.values()) >= self.state.limit:
            raise Refusal("global/quota-exceeded", "Quota exceeded.")
        left = self.state.stock.get((name, region), PLENTY)
        if left <= 0:
            raise Refusal(
                "instance-operations/launch/insufficient-capacity", "Not enough capacity to fulfill launch request."
            )
        self.state.stock[name, region] = left - 1
        number = next(self._ids)
        made = Machine(
            UUID(int=0x0920582C7FF041399340B3E1C3A80000 + number).hex,
            body,
            f"127.{72 + number // 250}.0.{1 + number % 250}",
        )
        made.cents = self.state.cents.get(name, TYPES[name].cents)
        made.made = self.clock.now()
        self.state.machines[made.id] = made
        self.clock.later(made.id, "booting", lambda: self._become(made, "active"))
        self.clock.settle()
        return {"instance_ids": [made.id]}

    def _become(self, machine: Machine, status: str) -> None:
        machine.status = status
        if status == "active":
            machine.active = self.clock.now()
        if status in ("terminated", "preempted"):
            machine.ended = self.clock.now()
        if self._watching and self._machines is not None:
            state = {"active": "running", "terminated": "terminated"}.get(status, "stopped")
            given = userdata.cloud_config(self.user_data(machine.id))
            self._machines.watch(ssh.Machine(machine.id, state, given, [machine.ip]))

    def _terminate(self, call: Call) -> dict[str, Any]:
        ids = call.body["instance_ids"]
        found = [self.state.machines.get(one) for one in ids]
        if None in found or any(one.status not in LIVE for one in found if one):
            raise Refusal("global/object-does-not-exist", "Specified instance does not exist.")
        for one in filter(None, found):
            if one.status != "terminating":
                one.status = "terminating"
                self.clock.later(one.id, "terminating", lambda one=one: self._become(one, "terminated"))
        self.clock.settle()
        return {"terminated_instances": [self._shown(one) for one in filter(None, found)]}

    def _list(self, _call: Call) -> list[dict[str, Any]]:
        return [self._shown(one) for one in self.state.machines.values() if one.status in LIVE and self._is_shown(one)]

    def _get(self, call: Call) -> dict[str, Any]:
        found = self.state.machines.get(call.where["id"])
        if found is None or not self._is_shown(found) or found.status not in LIVE:
            raise Refusal("global/object-does-not-exist", "Specified instance does not exist.")
        return self._shown(found)

    def _is_shown(self, machine: Machine) -> bool:
        return machine.made is not None and self.clock.now() - machine.made >= timedelta(seconds=self.late_s)

    def _rename(self, call: Call) -> dict[str, Any]:
        found = self._get(call)
        self.state.machines[call.where["id"]].asked = {**self.state.machines[call.where["id"]].asked, **call.body}
        return {**found, **call.body}

    def _keys(self, _call: Call) -> list[dict[str, str]]:
        return list(self.state.keys.values())

    def _add_key(self, call: Call) -> dict[str, str]:
        if call.body["name"] in {one["name"] for one in self.state.keys.values()}:
            raise Refusal("global/invalid-parameters", "SSH key name is already in use.")
        if "public_key" not in call.body:
            raise Unmodelled("a key that Lambda makes")
        made = {"id": f"key{next(self._ids):029d}", **call.body}
        self.state.keys[made["id"]] = made
        return made

    def _drop_key(self, call: Call) -> None:
        if self.state.keys.pop(call.where["id"], None) is None:
            raise Refusal("global/object-does-not-exist", "Specified SSH key does not exist.")

    def _global_firewall(self, _call: Call) -> dict[str, Any]:
        return {"id": "global", "name": "Global rules", "rules": self.state.rules}

    def _patch_global_firewall(self, call: Call) -> dict[str, Any]:
        self.state.rules = call.body["rules"]
        return self._global_firewall(call)

    def _shown(self, machine: Machine) -> dict[str, Any]:
        asked = machine.asked
        there = machine.status in ("active", "unhealthy", "terminating")
        more = {"ip": machine.ip, "private_ip": "10.19.60.24"} if there else {}
        jupyter = {"jupyter_token": "token-of-lambdas-own-jupyter", "jupyter_url": f"https://{machine.id}.invalid"}
        name = asked["instance_type_name"]
        return {
            "id": machine.id,
            "status": machine.status,
            **more,
            **({"name": asked["name"]} if "name" in asked else {}),
            "ssh_key_names": asked["ssh_key_names"],
            "file_system_names": asked.get("file_system_names", []),
            "region": {"name": asked["region_name"], "description": REGIONS[asked["region_name"]]},
            "instance_type": described(name, machine.cents),
            "hostname": asked.get("hostname", machine.ip),
            **jupyter,
            "is_reserved": False,
            "actions": {
                verb: {"available": True} for verb in ("migrate", "rebuild", "restart", "cold_reboot", "terminate")
            },
            "tags": asked.get("tags", []),
            "firewall_rulesets": asked.get("firewall_rulesets", []),
        }

    def _minutes(self, machine: Machine) -> int:
        if machine.active is None:
            return 0
        end = machine.ended or self.clock.now()
        return math.ceil((end - machine.active).total_seconds() / 60)
