"""Rows are read anew only where lines say so: whoever has read before finds what one finds who reads all."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.log.machines import of_those_there
from cloudgpu.ledger.open import open_ledger

NOW = datetime(2026, 11, 21, tzinfo=UTC)
INTENT = {
    "key": "k", "request": "r", "name": "n", "provider": "aws", "account": "lab", "region": "r", "zone": "z",
    "instance_type": "t", "market": "on_demand", "accelerators": [], "price": None, "owner": "ada", "project": "p",
    "policy": "default", "template": None, "expires": None, "renew_until": None, "stoppable": True, "setup": None,
    "stop_means": "stops", "attempt": 1, "token": "t",
}  # fmt: skip


def opened(path):
    return open_ledger(None, path, actor="ada", clock=lambda: NOW + timedelta(hours=1))


def a_line(chance, number):
    machine, at = f"cg-{chance.randrange(8)}", NOW + timedelta(seconds=chance.randrange(600))
    kinds = {
        "launch_intended": INTENT | {"token": f"t{number}"},
        "lease_set": {"expires": iso(at), "renew_until": iso(at), "why": "asked"},
        "account_synced": {"machines": 1, "unanswered": []},
        "resource_observed": {
            "id": "vol", "kind": "volume", "name": "data", "provider": "aws", "account": "lab", "region": "r",
            "zone": "z", "size_gb": 1, "stored_as": "gp3", "made_at": iso(at), "ready": True, "owner": "ada",
            "project": "p", "attached_to": None, "nanos_per_month": None, "per": "month", "nanos": None,
            "by_size": True, "why_at_most": "", "source": "s", "as_of": iso(at), "basis": "listed",
        },
    }  # fmt: skip
    kind = chance.choice([*kinds])
    subject = {"account_synced": "scope:aws/lab", "resource_observed": f"thing-{number % 3}"}.get(kind, machine)
    return Draft(kind, subject, kinds[kind], at, f"{kind}:{number}")


def test_who_has_read_before_finds_what_one_finds_who_reads_all(tmp_path):
    chance = random.Random(7)
    reader, writer = opened(tmp_path), opened(tmp_path)
    for number in range(120):
        chance.choice([reader, writer]).append([a_line(chance, number)])
        fresh = opened(tmp_path)
        if chance.random() < 0.7:
            assert reader.machines() == fresh.machines()
        if chance.random() < 0.5:
            assert reader.bills() == fresh.bills()
            assert reader.there() == of_those_there(fresh.machines())
        for row in fresh.machines()[:2]:
            assert reader.machine(row["id"]) == row
        fresh.close()
    assert len(reader.machines()) > 5
    assert len(reader.bills()) > len(reader.machines())


def test_what_a_reader_does_to_its_rows_is_no_other_readers_business(tmp_path):
    reader = opened(tmp_path)
    reader.append([Draft("launch_intended", "cg-1", INTENT, NOW, "intent")])
    reader.machines()[0]["name"] = "changed"
    reader.machine("cg-1")["name"] = "changed"
    assert [row["name"] for row in reader.machines()] == ["n"]
