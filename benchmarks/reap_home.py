"""Makes a home whose ledger knows the stub's machines, each launched, seen and priced, for the benchmarks of a pass."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import ec2_stub  # noqa: E402  (benchmarks/ is no package)

from cloudgpu.control.outage.opening import open_session  # noqa: E402
from cloudgpu.control.reaper.reaper import ReapOptions, reap  # noqa: E402
from cloudgpu.core.events.log import Draft  # noqa: E402
from cloudgpu.core.values.times import iso  # noqa: E402

CONFIG = 'provider = "aws"\nowner = "ada"\n[accounts.lab]\nprovider = "aws"\nregions = {regions}\n'
OF_LIST = {"source": "AWS price list", "as_of": "2026-11-01T00:00:00.000000Z", "basis": "listed"}
MORE = {"nanos_per_month": None, "at_most": False, "running": True, "kept": True, "named": False, "by_size": True}
NETWORK = {"ssh_from": ["203.0.113.7/32"], "subnet": None, "security_group": None, "public_ip": True, "jump": None}
SETUP = {"image": None, "disk_gb": 100, "volume": None, "persistent": False, "network": NETWORK, "keep_disk": True}


def make(home: Path, n: int, regions: int, now: datetime) -> None:
    """Write config and ledger into `home`, fill the stub with its machines, and make the pass before.

    That is one of four minutes ago: nothing is over yet, and what it decided of each machine stands in the ledger.
    """
    home.mkdir(mode=0o700, parents=True)
    names = ec2_stub.REGIONS[:regions]
    (home / "config.toml").write_text(CONFIG.format(regions=str(list(names)).replace("'", '"')))
    before = now - timedelta(minutes=4)
    session = open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=lambda: before)
    known = ec2_stub.machines(n, names, now, "")
    session.ledger.append([line for one in known for line in life(one)])
    where = f"{os.environ['AWS_ENDPOINT_URL']}/fill/{n}/{regions}/{now.timestamp()}/{session.ledger.id}"
    urlopen(where).close()  # noqa: S310  (the stub, on loopback)
    reap(session, ReapOptions())
    session.ledger.close()


def life(
    one: ec2_stub.Machine, provider: str = "aws", account: str = "lab", instance_type: str = "g4dn.xlarge"
) -> list[Draft]:
    """Return the lines of a machine's launch, as if at this provider and of this type."""
    token = f"t{one.number}"
    whose = {"provider": provider, "account": account, "identity": identity(provider), "instance_type": instance_type}
    made = {"token": token, "outcome": "made", "why": "it answered"}
    return [
        Draft(
            "launch_intended",
            one.machine,
            _intent(one) | whose,
            one.at,
            f"intent:{token}",
        ),
        Draft("launch_settled", one.machine, made, one.at, f"settled:{token}"),
    ]


def identity(provider: str) -> dict[str, str]:
    """Return what an account says that it is; that of AWS is what the stub says."""
    return {
        "kind": f"{provider} account",
        "id": "123456789012",
        "words": f"{provider.upper()} account 123456789012",
    }


def _intent(one: ec2_stub.Machine) -> dict[str, Any]:
    price = {"nanos_per_hour": 526_000_000, **OF_LIST}
    disk = {"what": "system disk of 100 GB", "resource": "disk", "stored_as": "gp3", "quantity": 100, "per": "month"}
    address = {"what": "public IPv4", "resource": "address", "stored_as": "public_ipv4", "quantity": 1, "per": "hour"}
    disk, address = disk | {"nanos": 80_000_000}, address | {"nanos": 5_000_000}
    renew_until = one.at + ec2_stub.RENEW_UNTIL
    return {
        "attempt": 1, "seq": 1, "token": f"t{one.number}", "key": f"k{one.number}", "request": f"r{one.number}",
        "name": f"machine-{one.number}", "provider": "aws", "account": "lab", "region": one.region,
        "zone": f"{one.region}a", "instance_type": "g4dn.xlarge", "market": "on_demand", "price": price,
        "on_demand": price, "max_price": None, "owner": "ada", "project": "thesis", "policy": "default",
        "policy_by": "config.toml", "template": "jupyter", "renew_s": 86400, "expires": iso(one.expires),
        "renew_until": iso(renew_until), "stoppable": True, "stop_effect": "stops",
        "accelerators": [{"name": "T4", "count": 1, "memory_gib": 16.0, "share": 1.0}],
        "setup": SETUP,
        "attached_costs": [one | MORE | OF_LIST for one in (disk, address)],
        "licence": "",
    }  # fmt: skip


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), datetime.fromtimestamp(float(sys.argv[4]), UTC))
