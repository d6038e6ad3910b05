"""One pass over 10,000 machines in 20 regions of three providers, against parsing the same answers and no more.

The answers are canned: what EC2 says, parsed by botocore (by ours as our AWS provider sets it up, which parses of a
machine what is read alone, and reads times without dateutil; in the parsing beside it as botocore comes), and JSON in
the shapes of Google's and Azure's REST answers, parsed by `json`. The three stand in for providers inside the process,
region after region (no HTTP, no SDK of Google or Azure); our AWS provider asks its regions side by side, and then holds
more at once. Nothing has changed since the pass before, as in most passes. CPU time and memory are those of a process
of its own, in turns.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import ec2_stub  # noqa: E402  (benchmarks/ is no package)

MACHINES = 10_000
SHARES = {"aws": 7, "gcp": 7, "azure": 6}  # regions
TYPES = {"aws": "g4dn.xlarge", "gcp": "n1", "azure": "Standard_NC4as_T4_v3"}  # as the answers say: nothing has changed
CPU_AIM, MEMORY_AIM_MB = 1.5, 200
CONFIG = "".join(f'[accounts.{kind}]\nprovider = "{kind}"\n' for kind in SHARES)


def measure(turns: int = 3) -> dict[str, Any]:
    """Return the rows: CPU seconds and memory of a pass, beside the parsing alone."""
    with tempfile.TemporaryDirectory() as place:
        _write_answers(Path(place), datetime.now(UTC))
        _run("make", Path(place))
        found = [(_run("ours", Path(place)), _run("raw", Path(place))) for _ in range(turns + 1)][1:]
    ratio = statistics.median(ours["cpu"] / raw["cpu"] for ours, raw in found)
    cpu, memory = ([(ours[name], raw[name]) for ours, raw in found] for name in ("cpu", "memory"))
    what = f"a pass over {MACHINES:,} machines, 20 regions, 3 providers"
    return {
        "rows": [
            _row(what, "CPU s", cpu) | {"ratio": ratio, "aim": f"<= {CPU_AIM}", "met": ratio <= CPU_AIM},
            _row(f"{what}: memory", "MB", memory)
            | {"aim": f"< {MEMORY_AIM_MB} MB", "met": max(ours for ours, _ in memory) < MEMORY_AIM_MB},
        ]
    }


def _row(what: str, unit: str, pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    ours, raw = (statistics.median(values) for values in zip(*pairs, strict=True))
    spread = f"{min(one for one, _ in pairs):.2f} to {max(one for one, _ in pairs):.2f}"
    return {"what": what, "unit": unit, "ours": ours, "against": raw, "ratio": ours / raw, "n": len(pairs)} | {
        "spread": spread
    }


def _run(what: str, place: Path) -> dict[str, float]:
    """Do it in a process of its own; return its CPU seconds and the most memory it had, in MB."""
    home = place / "home"
    if what == "ours":
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(place / "made", home)
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(place / "bytecode"), "USER": "ada"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    argv = [sys.executable, str(Path(__file__)), what, str(place)]
    done = subprocess.run(argv, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _machines(now: datetime) -> Iterator[tuple[str, list[ec2_stub.Machine]]]:
    """Yield the machines of each region, with the provider's name; none of them is over."""
    each, regions = MACHINES // sum(SHARES.values()), iter(ec2_stub.REGIONS)
    for kind, count in SHARES.items():
        for region in (next(regions) for _ in range(count)):
            first = ec2_stub.REGIONS.index(region) * each
            yield kind, [ec2_stub.Machine(one, region, now, "LEDGER", old=False) for one in range(first, first + each)]


def _write_answers(place: Path, now: datetime) -> None:
    (place / "now").write_text(str(now.timestamp()))
    for number, (kind, some) in enumerate(_machines(now)):
        answer = {"aws": ec2_stub.described, "gcp": _as_google, "azure": _as_azure}[kind](some)
        (place / f"{number:02}.{kind}.{some[0].region}").write_text(answer)


def _as_google(some: Sequence[ec2_stub.Machine]) -> str:
    """Return what instances.list of Compute Engine says of these."""
    items = [
        {
            "kind": "compute#instance", "id": str(10**18 + one.number), "name": one.machine, "status": "RUNNING",
            "creationTimestamp": f"{one.at:%Y-%m-%dT%H:%M:%S.000+00:00}", "tags": {"fingerprint": "42WmSpB8rSM="},
            "lastStartTimestamp": f"{one.at:%Y-%m-%dT%H:%M:%S.000+00:00}", "labelFingerprint": "Zq1nE1Yg0VE=",
            "machineType": f"https://www.googleapis.com/compute/v1/projects/p/zones/{one.region}-a/machineTypes/n1",
            "zone": f"https://www.googleapis.com/compute/v1/projects/p/zones/{one.region}-a", "cpuPlatform": "Intel",
            "networkInterfaces": [{
                "kind": "compute#networkInterface", "network": "global/networks/default", "name": "nic0",
                "networkIP": "10.0.1.7", "stackType": "IPV4_ONLY", "fingerprint": "Tt0tJzDx3ys=",
                "accessConfigs": [{
                    "kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT", "name": "nat", "natIP": "127.0.1.7",
                    "networkTier": "PREMIUM",
                }],
            }],
            "disks": [{
                "kind": "compute#attachedDisk", "type": "PERSISTENT", "mode": "READ_WRITE", "deviceName": "boot",
                "source": f"zones/{one.region}-a/disks/{one.machine}", "index": 0, "boot": True, "autoDelete": True,
                "interface": "SCSI", "diskSizeGb": "100", "guestOsFeatures": [{"type": "UEFI_COMPATIBLE"}],
            }],
            "metadata": {"kind": "compute#metadata", "fingerprint": "f", "items": [{"key": "k", "value": "v" * 200}]},
            "scheduling": {"onHostMaintenance": "TERMINATE", "automaticRestart": False, "preemptible": False},
            "guestAccelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 1}],
            "labels": one.tags, "deletionProtection": False, "startRestricted": False, "fingerprint": "abc",
        }
        for one in some
    ]  # fmt: skip
    return json.dumps({"kind": "compute#instanceList", "items": items})


def _as_azure(some: Sequence[ec2_stub.Machine]) -> str:
    """Return what the list of virtual machines of Azure says of these."""
    items = [
        {
            "name": one.machine, "id": f"/subscriptions/s/resourceGroups/g/virtualMachines/{one.machine}",
            "type": "Microsoft.Compute/virtualMachines", "location": one.region, "tags": one.tags, "zones": ["1"],
            "properties": {
                "vmId": one.hex17, "hardwareProfile": {"vmSize": "Standard_NC4as_T4_v3"},
                "timeCreated": f"{one.at:%Y-%m-%dT%H:%M:%S.0000000+00:00}", "provisioningState": "Succeeded",
                "storageProfile": {
                    "imageReference": {"publisher": "Canonical", "offer": "ubuntu", "sku": "22", "version": "latest"},
                    "osDisk": {
                        "osType": "Linux", "name": f"{one.machine}-os", "createOption": "FromImage", "diskSizeGB": 100,
                        "caching": "ReadWrite", "deleteOption": "Delete", "managedDisk": {"id": "/disks/d"},
                    },
                    "dataDisks": [],
                },
                "osProfile": {
                    "computerName": one.machine, "adminUsername": "cloudgpu", "secrets": [],
                    "linuxConfiguration": {"disablePasswordAuthentication": True, "provisionVMAgent": True},
                },
                "networkProfile": {"networkInterfaces": [{"id": f"/networkInterfaces/{one.machine}"}]},
                "instanceView": {
                    "statuses": [
                        {"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioned"},
                        {"code": "PowerState/running", "level": "Info", "displayStatus": "VM running"},
                    ]
                },
            },
        }
        for one in some
    ]  # fmt: skip
    return json.dumps({"value": items})


def _parsers(session: Any = None) -> dict[str, Callable[[bytes], list[dict[str, Any]]]]:
    """Return what parses an answer of each provider into what it says of each machine; EC2's as the session does."""
    from botocore.session import Session

    session = session or Session()
    shape = session.get_service_model("ec2").operation_model("DescribeInstances").output_shape
    parser = session.get_component("response_parser_factory").create_parser("ec2")

    def of_ec2(body: bytes) -> list[dict[str, Any]]:
        answer = parser.parse({"body": body, "headers": {}, "status_code": 200}, shape)
        return [one for part in answer["Reservations"] for one in part["Instances"]]

    return {
        "aws": of_ec2,
        "gcp": lambda body: list(json.loads(body)["items"]),
        "azure": lambda body: list(json.loads(body)["value"]),
    }


def _answers(place: Path, kind: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(place.glob(f"*.{kind}.*")):
        yield path.name.rpartition(".")[2], path.read_bytes()


def _raw(place: Path) -> None:
    """Parse every answer, and keep nothing."""
    parsers = _parsers()
    assert sum(len(parsers[kind](body)) for kind in SHARES for _, body in _answers(place, kind)) == MACHINES


class _Canned:
    """A provider of canned answers: what a pass in which nothing has changed asks of one."""

    def __init__(self, kind: str, place: Path, parse: Callable[[bytes], list[dict[str, Any]]]) -> None:
        from cloudgpu.providers.base import TokenRule

        self.kind, self.account = kind, kind
        self.token_rule = TokenRule(timedelta(hours=23), timedelta(minutes=10), "a benchmark")
        self._place, self._parse = place, parse

    def list(self) -> Any:
        """Return what the answers say."""
        from cloudgpu.core.model.instances import Listing
        from cloudgpu.parallel import send_heartbeat

        found: list[Any] = []
        for region, body in _answers(self._place, self.kind):
            found += self._of_region(region, body)
            send_heartbeat()  # as a provider does: on a busy computer a run would else give up on the account
        return Listing(tuple(found), ())

    def identity(self, _region: str | None = None) -> Any:
        """Return which account it is."""
        import reap_home

        from cloudgpu.core.model.identity import AccountIdentity

        record = reap_home.identity(self.kind)
        return AccountIdentity(record["kind"], record["id"], record["words"])

    def _of_region(self, region: str, body: bytes) -> Iterator[Any]:
        from cloudgpu.providers.aws.compute.translate import instance

        if self.kind == "aws":
            return (instance(one, account="aws", region=region, ssh_port=22) for one in self._parse(body))
        return map(partial(_translated, self.kind, region), self._parse(body))


def _translated(kind: str, region: str, found: Mapping[str, Any]) -> Any:
    """Return a machine of Google's or Azure's answer as ours."""
    from cloudgpu.core.model.instances import Address, Instance, State
    from cloudgpu.core.model.offers import Accelerator, Market

    google = kind == "gcp"
    began = datetime.fromisoformat(found["creationTimestamp"] if google else found["properties"]["timeCreated"])
    runs = (found["status"] if google else found["properties"]["instanceView"]["statuses"][1]["code"]).upper()
    host = found["networkInterfaces"][0]["accessConfigs"][0]["natIP"] if google else "127.0.1.7"
    tags = found["labels"] if google else found["tags"]
    return Instance(
        provider=kind,
        account=kind,
        id=found["id"],
        state=State.RUNNING if runs.endswith("RUNNING") else State.UNKNOWN,
        billed=True,
        tags=tags,
        region=region,
        zone=f"{region}a",
        instance_type=TYPES[kind],
        market=Market.ON_DEMAND,
        launched_at=began,
        since=began,
        address=Address(host, 22, "cloudgpu"),
        accelerators=(Accelerator("T4", 1, 16.0),),
        last_active=datetime.fromtimestamp(int(tags["cloudgpu-last-active"]), UTC),
    )


def _pass(place: Path, home: Path, now: datetime | None = None) -> Any:
    """Make a pass over the canned answers and return it."""
    from cloudgpu.control.outage.opening import open_session
    from cloudgpu.control.reaper.reaper import ReapOptions, reap
    from cloudgpu.control.session.base import utc_now
    from cloudgpu.providers.aws.client import fast_session

    clock = utc_now if now is None else lambda: now
    session, parsers = (
        open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=clock),
        _parsers(fast_session(None)),
    )
    session._providers.update({kind: _Canned(kind, place, parse) for kind, parse in parsers.items()})  # type: ignore[misc]  # noqa: SLF001
    return reap(session, ReapOptions())


def _make(place: Path) -> None:
    """Make the home whose ledger knows them all, and the pass before."""
    import reap_home

    from cloudgpu.control.outage.opening import open_session

    home, now = place / "made", datetime.fromtimestamp(float((place / "now").read_text()), UTC)
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'owner = "ada"\n{CONFIG}')
    session = open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=lambda: now)
    for kind, some in _machines(now):
        session.ledger.append([line for one in some for line in reap_home.life(one, kind, kind, TYPES[kind])])
    for path in place.glob("*.*.*"):
        path.write_text(path.read_text().replace("LEDGER", session.ledger.id))
    session.ledger.close()
    _pass(place, home, now - timedelta(minutes=4))


def main() -> None:
    """Do one of the two in this process and print what it took, or print the table."""
    what = sys.argv[1] if len(sys.argv) > 1 else "3"
    if what.isdecimal():
        for row in measure(int(what))["rows"]:
            print(f"{row['what']}: {row['ours']:.2f} {row['unit']}, {row['against']:.2f}, {row['ratio']:.2f} times")
        return
    place = Path(sys.argv[2])
    if what == "make":
        _make(place)
    elif what == "raw":
        _raw(place)
    else:
        found = _pass(place, place / "home")
        assert found.decided == {"keep": MACHINES}, found.decided
        assert found.exit_code == 0, (found.unanswered, found.faults)
        assert not found.sentences, found.sentences[:3]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu": time.process_time(), "memory": memory}))


if __name__ == "__main__":
    main()
