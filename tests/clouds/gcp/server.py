"""Our model of Google Cloud: Compute Engine and a few calls of its neighbours on loopback, over HTTP.

Which calls there are, and what their bodies look like, is from Google's discovery documents, and every request and
every answer is held to them. What the calls do is our model of what Google's documentation and public reports say; it
never ran against Google Cloud. What is only believed says so where it stands, and in README.md beside this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.clouds import ssh, userdata
from tests.clouds.gcp import (
    disks,
    errors,
    machine_calls,
    machine_checks,
    machines,
    network,
    operations,
    permissions,
    projects,
    resources,
)
from tests.clouds.gcp.discovery import router
from tests.clouds.gcp.handlers import HANDLERS, Asked
from tests.clouds.gcp.model import PROJECT, ROOT, Key, Model, Thing, metadata_of, shown
from tests.clouds.gcp.stock import PUBLIC, TYPES, region_of
from tests.clouds.rest import Call, Refusal, Reply, Request, RestServer, Unmodelled
from tests.clouds.rest_faults import Fault

LIVE = {"PROVISIONING", "STAGING", "RUNNING", "REPAIRING", "STOPPING", "SUSPENDING", "SUSPENDED"}
FOUND = [machine_calls, projects, resources]  # what they answer is in HANDLERS


class GcpServer(RestServer):
    """One server. Machines are named as cloudgpu names them: `us-central1-a/cg-0123`.

    `malformed` are requests that Google's description of the call does not know: it answers 400, and the test fails.
    """

    def __init__(self, port: int = 0, ssh_port: int = 0) -> None:
        self._ssh_port = ssh_port
        self._machines: ssh.Machines | None = None
        super().__init__(port)

    def forget(self) -> None:
        """Begin anew: a project with the default network, no machines, and limits of eight GPUs of each kind."""
        super().forget()
        self.malformed: list[str] = []
        self.model = Model(self.clock)
        if self._machines is not None:
            self._machines.close_all()
        network.furnish(self.model)
        projects.furnish(self.model)
        for project, (families, size) in PUBLIC.items():
            for family in families.split():
                disks.furnish(self.model, project, family, size)

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which cloudgpu talks to it."""
        return {"CLOUDGPU_GCP_ENDPOINT": self.url, "GOOGLE_CLOUD_PROJECT": PROJECT}

    def stop(self) -> None:
        """End it, and the SSH servers of its machines."""
        if self._machines is not None:
            self._machines.end()
            self._machines = None
        super().stop()

    # What tests do to it, and ask of it.

    def instance(self, id: str) -> Thing:  # noqa: A002
        """Return the record of a machine, the model's own keys included. Raises KeyError for none."""
        return self.model.resources[_key(id)]

    def instances(self, *, live: bool = False) -> list[str]:
        """Return the ids of machines; `live` are those that are billed as machines."""
        with self.lock:
            self.clock.settle()
            found = self.model.of("instances").items()
            return [f"{key.place}/{key.name}" for key, one in found if not live or one["status"] in LIVE]

    def make(self, name: str, zone: str = "us-central1-a", **body: Any) -> str:
        """Make a machine without a call: an N1 with a T4 that runs, unless `body` says more; return its id.

        For tests with many machines; nothing of it is counted or checked against the description.
        """
        wanted = {**_usual(name, zone), **body}
        call = Call(0, "compute.instances.insert", {"project": PROJECT, "zone": zone}, {}, wanted)
        with self.lock:
            HANDLERS[call.action](Asked(self.model, call, Request("POST", "", {}, {}, wanted), [], set()))
            self.clock.settle()
        return f"{zone}/{name}"

    def status(self, id: str) -> str:  # noqa: A002
        """Return the state of a machine in Google's word; empty when there is none."""
        with self.lock:
            self.clock.settle()
            return str(self.model.resources.get(_key(id), {}).get("status", ""))

    def interrupt(self, id: str) -> None:  # noqa: A002
        """Take a Spot machine back: its notice is over."""
        with self.lock:
            self.clock.settle()
            machines.interrupt(self.model, _key(id))

    def shut_down(self, id: str) -> None:  # noqa: A002
        """Shut a machine down from inside."""
        with self.lock:
            self.clock.settle()
            machines.shut_down(self.model, _key(id))

    def finish(self, what: str) -> None:
        """Let what a machine waits for end (`ZONE/NAME`), or an operation, or `image NAME`, `snapshot NAME`."""
        with self.lock:
            if "/" in what:
                operations.hurry(self.model, _key(what))
            else:
                self.clock.hurry(what)

    def say(self, id: str, key: str, value: str) -> None:  # noqa: A002
        """Write a guest attribute (`cloudgpu/last-active`) as the machine itself does; it needs no credential."""
        with self.lock:
            self.instance(id)["_guest"][key] = value

    def metadata(self, id: str) -> dict[str, str]:  # noqa: A002
        """Return the metadata that a machine reads of itself, those of the project included."""
        return {**self.model.project_metadata, **metadata_of(self.instance(id))}

    def user_data(self, id: str) -> list[userdata.Part]:  # noqa: A002
        """Return the parts of what a machine was given at its launch, for cloud-init."""
        return userdata.parts(self.metadata(id).get("user-data", "").encode())

    def allows(self, id: str, address: str, port: int = 22) -> bool:  # noqa: A002
        """Say whether an address really gets in, by all rules of the machine's network."""
        return network.allows(self.model, self.instance(id), address, port)

    def limit(self, metric: str, value: float, region: str = "") -> None:
        """Set a limit: `NVIDIA_T4_GPUS` of a region, `GPUS_ALL_REGIONS` of none."""
        self.model.limits[region, metric] = value

    def stockout(self, *, times: int = 1 << 30, code: str = "ZONE_RESOURCE_POOL_EXHAUSTED", **where: Any) -> Fault:
        """Let launches and starts end for want of machines; `where` is zone, region, type, gpu, market."""
        return self.faults.put(Fault("error", None, {"begins": True, **where}, times, code))

    def operations(self, kind: str = "") -> list[Thing]:
        """Return the operations so far, of one kind if it is named."""
        return [shown(one) for one in self.model.operations.values() if kind in {"", one["operationType"]}]

    def firewalls(self) -> list[str]:
        """Return the names of the firewall rules that are not those of the default network."""
        return sorted(key.name for key in self.model.of("firewalls") if not key.name.startswith("default-allow-"))

    def billable(self) -> list[str]:
        """Return all that costs money, as paths: machines that run, disks, snapshots, images, addresses.

        Local SSD whose data a stopped machine keeps is billed on; a machine that has shut down costs its disks only.
        """
        with self.lock:
            self.clock.settle()
            found = self.model.of("instances").items()
            paths = [key.path for key, one in found if one["status"] in LIVE]
            paths += [f"{key.path}#local-ssd" for key, one in found if _keeps(one)]
            for kind in ("disks", "snapshots", "images", "machineImages", "addresses"):
                paths += [key.path for key in self.model.of(kind)]
            return sorted(paths)

    @property
    def ssh_port(self) -> int:
        """The port of SSH on every machine: no two servers have the same one, though addresses repeat."""
        return self._ssh_port or self.port

    def serve_ssh(self) -> ssh.Machines:
        """Let machines answer SSH from now on until the next reset, at their own addresses."""
        if self._machines is None:
            self._machines = ssh.Machines(self.url, self.ssh_port)
        served = self._machines
        self.model.watchers.append(lambda key, one: served.watch(_served(key, one)))
        return served

    # How a request is answered.

    def read(self, request: Request) -> tuple[str, dict[str, str]]:
        """Return the call that a request is, by the discovery documents."""
        found = router().find(request.method, request.path)
        if found is None:
            raise Unmodelled(f"{request.method} {request.path} is no call of Google's")
        return found[0].id, found[1]

    def place(self, call: Call) -> Mapping[str, Any]:
        """Return the region of a zone's call; of what begins a machine its type, its GPU and its market."""
        zone = call.where.get("zone", "")
        said: dict[str, Any] = {"region": region_of(zone)} if zone else {}
        if call.action == "compute.instances.insert" and isinstance(call.body, dict):
            return {**said, **_begun(call.body), "instance": call.body.get("name")}
        machine = self.model.resources.get(_key(f"{zone}/{call.where.get('instance', '')}"))
        if call.action == "compute.instances.start" and machine is not None:
            return {**said, **_begun(machine)}
        return said

    def inside(self, call: Call, fault: Fault) -> bool:
        """Say whether a fault comes inside the operation that a call begins: its code is in capitals then."""
        return errors.is_inside(fault.error) and router().by_id[call.action].response == "Operation"

    def answer(self, call: Call, request: Request) -> Reply:
        """Answer a call, and hold both the request and the answer to Google's description."""
        method = router().by_id[call.action]
        wrong = [*method.faults_of_path(call.where), *method.faults_of_query(call.query)]
        wrong += method.faults_of_request(call.body)
        if wrong:
            self.malformed += [f"{call.action}: {one}" for one in wrong]
            raise Refusal("badRequest", f"Invalid JSON payload received. {wrong[0]}")
        self._check_permission(call)
        if call.action not in HANDLERS:
            raise Unmodelled("no answer")
        body = operations.known(self.model, call)
        if body is None:
            body = HANDLERS[call.action](Asked(self.model, call, request, self._silent(), self._denied()))
        body = shown(body)
        for one in method.faults_of_answer(body):
            raise Unmodelled(f"an answer that is not Google's: {one}")
        return Reply(200, body)

    def _check_permission(self, call: Call) -> None:
        lacking = permissions.needed(call) - (self.model.granted or set()) if self.model.granted is not None else set()
        for one in sorted(lacking):
            raise _lacks(call, one)

    def refusal(self, call: Call, refusal: Refusal) -> Reply:
        """Return an error as Google says it."""
        return errors.reply(refusal)

    def denial(self, call: Call) -> Refusal:
        """Return what Google says for want of the first permission that a call needs."""
        service, *kinds, method = call.action.split(".")
        return _lacks(call, f"{service}.{'.'.join(kinds)}.{permissions.WORDS.get(method, method)}")

    def power(self, verb: str, machine: str) -> None:
        """Do what a program on a machine asked for."""
        if verb != "shut-down":
            raise ValueError(verb)
        self.shut_down(machine)

    def _silent(self) -> list[str]:
        """Return the scopes that answer nothing: lists over all places name them."""
        found = [one.where for one in self.faults.standing("refused") if one.action is None]
        zones = [zone for where in found for zone in projects.all_zones() if _means(where, zone)]
        return [f"zones/{zone}" for zone in zones] + [f"regions/{one['region']}" for one in found if "region" in one]

    def _denied(self) -> set[str]:
        """Return the permissions that faults say the caller lacks."""
        found = [one.action for one in self.faults.standing("denied") if one.action]
        return {one for action in found for one in permissions.needed(Call(0, action, {}, {}, None))}


def _usual(name: str, zone: str) -> dict[str, Any]:
    gpu = {"acceleratorType": f"projects/{PROJECT}/zones/{zone}/acceleratorTypes/nvidia-tesla-t4"}
    image = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
    return {
        "name": name,
        "machineType": f"zones/{zone}/machineTypes/n1-standard-4",
        "guestAccelerators": [{**gpu, "acceleratorCount": 1}],
        "scheduling": {"onHostMaintenance": "TERMINATE"},
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": image}}],
        "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
    }


def _means(where: Mapping[str, Any], zone: str) -> bool:
    return where.get("zone") == zone or where.get("region") == region_of(zone)


def _key(id: str) -> Key:  # noqa: A002
    zone, _, name = id.partition("/")
    return Key("instances", PROJECT, f"zones/{zone}", name)


def _keeps(machine: Thing) -> bool:
    """Say whether a machine at rest keeps the data of its local SSD, for which it is billed."""
    return machine["status"] == "TERMINATED" and bool(machine.get("_keeps_local_ssd"))


def _begun(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return what faults may ask of a machine that is to begin."""
    name = str(machine.get("machineType", "")).rpartition("/")[2]
    attached = machine.get("guestAccelerators") or []
    gpu = attached[0].get("acceleratorType", "").rpartition("/")[2] if attached else ""
    spot = (machine.get("scheduling") or {}).get("provisioningModel") == "SPOT"
    gpu = gpu or (TYPES[name].gpu if name in TYPES else "")
    return {"type": name, "gpu": gpu, "market": "spot" if spot else "on-demand", "begins": True}


def _lacks(call: Call, permission: str) -> Refusal:
    names = [call.where[one] for one in ("instance", "disk", "image", "firewall", "snapshot") if one in call.where]
    project = call.where.get("project", PROJECT)
    sentence = f"Required '{permission}' permission for 'projects/{project}/{'/'.join(names)}'"
    return Refusal("forbidden", sentence.replace("/'", "'"), 403)


def _served(key: Key, machine: Thing) -> ssh.Machine:
    given = userdata.cloud_config(userdata.parts(metadata_of(machine).get("user-data", "").encode()))
    interface = machine["networkInterfaces"][0]
    hosts = [one["natIP"] for one in interface.get("accessConfigs", []) if "natIP" in one] + [interface["networkIP"]]
    state = {"RUNNING": "running", "GONE": "terminated"}.get(machine["status"], "stopped")
    return ssh.Machine(f"{key.place}/{key.name}", state, given, hosts)


__all__ = ["FOUND", "ROOT", "GcpServer", "machine_checks"]
