"""A ledger with every kind of charge: clouds, markets, price changes, free, unpriced and doubtful ones, things kept."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.billing.discounts import Discount
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.offers import Basis, Market, Price, price_to_json
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from tests.ledger.lines import PRICE, intended, seen

NOW = datetime(2026, 12, 3, 12, tzinfo=UTC)
AS_OF = "2026-11-20T00:00:00.000000Z"
ON_DEMAND = PRICE | {"nanos_per_hour": 526_000_000}
UNVERIFIED = {"nanos_per_hour": 1_131_000_000, "source": "from memory", "as_of": AS_OF, "basis": "unverified"}


def line(kind, subject, at, body):
    return Draft(kind, subject, body, from_iso(at), f"{kind}:{subject}:{at}:{body.get('id', '')}")


def launched(machine, at, **more):
    return line("launch_intended", machine, at, {**intended(machine).body, "region": "us-east-1", **more})


def looked(machine, at, state="running", own="i-0123456789abcdef0", **more):
    usual = {"provider_id": f"us-east-1/{own}", "state": state, "billed": state == "running"}
    return line("instance_observed", machine, at, {**seen(machine).body, **usual, **more})


def beside(what, resource, stored_as, quantity, per, nanos, **more):
    entry = {"what": what, "resource": resource, "stored_as": stored_as, "quantity": quantity, "per": per}
    entry |= {"nanos": nanos, "nanos_per_month": nanos, "at_most": False, "why_maybe_less": "", "running": True}
    return entry | {"kept": True, "named": False, "source": "a list", "as_of": AS_OF, "basis": "listed"} | more


def aws_spot():
    """Four days over a month's end at two prices, with a disk, an address and bytes out."""
    extras = [
        beside("disk of 100 GB", "disk", "gp3", 100, "month", 80_000_000),
        beside("public address", "address", "public_ipv4", 1, "hour", 5_000_000, kept=False),
    ]
    aws = {"provider": "aws", "account": "lab", "instance_type": "g4dn.xlarge", "market": "spot", "zone": "us-east-1a"}
    aws |= {"name": "otter", "owner": "=ada@example.org", "project": "vision", "attached_costs": extras}
    bytes_out = {"bytes_out": 12_000_000_000, "since": "2026-12-01T00:00:00.000000Z", "nanos": 90_000_000}
    bytes_out |= {"until": "2026-12-02T00:00:00.000000Z", "stored_as": "egress", "source": "a list", "as_of": AS_OF}
    dearer = PRICE | {"nanos_per_hour": 210_000_000}
    return [
        launched("cg-1", "2026-11-29T10:00:00Z", **aws, price=PRICE | {"nanos_per_hour": 200_000_000}),
        looked("cg-1", "2026-11-29T10:00:07.5Z"),
        line(
            "price_observed",
            "cg-1",
            "2026-11-30T09:30:00Z",
            {"price": dearer, "maybe_from": "2026-11-30T09:00:00.000000Z", "on_demand": ON_DEMAND},
        ),
        line("traffic_observed", "cg-1", "2026-12-02T00:05:00Z", bytes_out | {"basis": "listed"}),
        looked("cg-1", "2026-12-02T10:00:07.5Z", "terminated"),
    ]


def others():
    """Machines of other clouds, one without a price, one that was free, one that vanished, a volume kept by name."""
    aws = {"provider": "aws", "account": "lab", "zone": "us-east-1b"}
    volume = {"id": "us-east-1/vol-0123456789abcdef0", "kind": "volume", "name": "data", "provider": "aws"}
    volume |= {"account": "lab", "region": "us-east-1", "zone": "us-east-1a", "size_gb": 50, "stored_as": "gp3"}
    volume |= {"made_at": "2026-11-30T00:00:00.000000Z", "ready": True, "owner": "ada", "project": ""}
    volume |= {"attached_to": None, "nanos_per_month": 4_000_000_000, "per": "month", "nanos": 80_000_000}
    volume |= {"why_maybe_less": "", "source": "a list", "as_of": AS_OF, "basis": "derived", "by_size": True}
    azure = {"provider": "azure", "account": "uni", "region": "koreacentral", "zone": None}
    azure |= {"attached_costs": [beside("disk P10", "disk", "P10", 1, "month", 19_710_000_000)]}
    gcp = {"provider": "gcp", "account": "cloud", "region": "asia-northeast3", "zone": "asia-northeast3-b"}
    return [
        launched("cg-2", "2026-11-30T10:00:00Z", **aws, name="no-price", instance_type="p9.large", price=None),
        looked("cg-2", "2026-11-30T10:00:00Z", own="i-0123456789abcdef2"),
        looked("cg-2", "2026-12-01T10:00:00Z", "terminated", own="i-0123456789abcdef2"),
        launched("cg-3", "2026-12-01T10:00:00Z", **aws, name="taken", market="spot", price=PRICE),
        looked("cg-3", "2026-12-01T10:00:00Z", own="i-0123456789abcdef3"),
        looked("cg-3", "2026-12-01T10:30:00Z", "terminated", own="i-0123456789abcdef3", reason="interrupted"),
        launched("cg-4", "2026-12-01T00:00:00Z", **azure, name="korea", instance_type="NC6", price=UNVERIFIED),
        looked("cg-4", "2026-12-01T00:00:00Z", provider_id="/subscriptions/1/virtualMachines/korea"),
        launched("cg-5", "2026-12-02T00:00:00Z", **gcp, name="seoul", instance_type="n1-standard-8", price=ON_DEMAND),
        looked("cg-5", "2026-12-02T00:00:00Z", provider_id="cloud/asia-northeast3-b/seoul"),
        line(
            "instance_vanished",
            "cg-5",
            "2026-12-02T08:00:00Z",
            {"provider_id": "x", "proof": "none", "alive_at": "2026-12-02T06:00:00.000000Z"},
        ),
        line("resource_observed", "vol-1", "2026-11-30T01:00:00Z", volume),
    ]


def negotiated():
    """Two hours of a machine at a quarter off, and of one at a fixed rate that no list has."""
    facts = {"provider": "aws", "account": "lab", "zone": "us-east-1b", "region": "us-east-1"}
    markets = frozenset({Market.ON_DEMAND})
    found = []
    for number, (percent, rate, listed) in enumerate([(Fraction(25), None, "0.526"), (None, Money.usd(2), None)]):
        agreed = Discount("aws", "*", "*", "*", markets, percent, rate, None, None, f"config.toml discounts[{number}]")
        public = listed and Price(Money.usd(listed), "a list", from_iso(AS_OF), Basis.LISTED)
        price = price_to_json(agreed.apply(public, NOW))
        machine, own = f"cg-8{number}", f"i-0123456789abcde8{number}"
        facts |= {"name": f"agreed-{number}", "instance_type": f"g{number}.large", "market": "on_demand"}
        found += [
            launched(machine, "2026-12-01T10:00:00Z", **facts, price=price),
            looked(machine, "2026-12-01T10:00:00Z", own=own),
            looked(machine, "2026-12-01T12:00:00Z", "terminated", own=own),
        ]
    return found


def filled(home, drafts=None, now=NOW):
    """A session on a ledger in `home` that holds these lines; its clock stands."""
    home.mkdir(exist_ok=True)
    session = open_session({"CLOUDGPU_HOME": str(home)}, clock=lambda: now)
    session.ledger.append([*aws_spot(), *others()] if drafts is None else drafts)
    return session
