"""Rows are read anew only where lines say so: whoever has read before finds what one finds who reads all."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pytest

from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.log.machines import select_present
from cloudgpu.ledger.open import open_ledger
from cloudgpu.ledger.sqlite import connection as connections
from tests.ledger.lines import DISK, at, intended, priced, seen
from tests.ledger.suite import KEPT

NOW = datetime(2026, 11, 21, tzinfo=UTC)
INTENT = {
    "key": "k", "request": "r", "name": "n", "provider": "aws", "account": "lab", "region": "r", "zone": "z",
    "instance_type": "t", "market": "on_demand", "accelerators": [], "price": None, "owner": "ada", "project": "p",
    "policy": "default", "template": None, "expires": None, "renew_until": None, "stoppable": True, "setup": None,
    "stop_effect": "stops", "attempt": 1, "token": "t",
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
            "by_size": True, "why_maybe_less": "", "source": "s", "as_of": iso(at), "basis": "listed",
        },
    }  # fmt: skip
    kind = chance.choice([*kinds])
    subject = {"account_synced": "scope:aws/lab", "resource_observed": f"thing-{number % 3}"}.get(kind, machine)
    return Draft(kind, subject, kinds[kind], at, f"{kind}:{number}")


@pytest.mark.soak
def test_who_has_read_before_finds_what_one_finds_who_reads_all(tmp_path):
    chance = random.Random(7)
    reader, writer = opened(tmp_path), opened(tmp_path)
    for number in range(120):
        chance.choice([reader, writer]).append([a_line(chance, number)])
        fresh = opened(tmp_path)
        if chance.random() < 0.7:
            assert reader.machines() == fresh.machines()
        if chance.random() < 0.5:
            assert reader.billable_machines() == fresh.billable_machines()
            assert reader.present_machines() == select_present(fresh.machines())
        for row in fresh.machines()[:2]:
            assert reader.machine(row.id) == row
        fresh.close()
    assert len(reader.machines()) > 5
    assert len(reader.billable_machines()) > len(reader.machines())


def test_what_others_appended_is_found_without_reading_all_lines(tmp_path, monkeypatch):
    """SQLite would look through a whole index for a DISTINCT, and a pass reads all rows a dozen times."""
    asked = []

    def execute(self, sql, parameters=(), /):
        if "line" in sql and "LIMIT 1" not in sql:
            asked.extend(row[3] for row in sqlite3.Connection.execute(self, f"EXPLAIN QUERY PLAN {sql}", parameters))
        return sqlite3.Connection.execute(self, sql, parameters)

    reader, writer = opened(tmp_path), opened(tmp_path)
    writer.append([a_line(random.Random(7), 1)])
    reader.machines()
    writer.append([a_line(random.Random(7), 2)])
    monkeypatch.setattr(connections._LockWaitingConnection, "execute", execute)
    reader.machines()
    assert len(asked) == 2
    assert all(plan.startswith("SEARCH line USING INTEGER PRIMARY KEY") for plan in asked)


def life():
    """The lines of a machine of which much is known: all that has a value inside its row."""
    costs = [DISK | {"kept": True}]
    setup = {
        "image": None, "disk_gb": 100, "volume": {"name": "data", "size_gb": 1}, "persistent": False,
        "network": {
            "ssh_from": ["0.0.0.0/0"], "subnet": None, "security_group": None, "public_ip": True, "jump": None
        }, "keep_disk": False,
    }  # fmt: skip
    text = {"place": "limits.yaml", "text": "max_lease: 1d"}
    more = {
        "attached_costs": costs, "setup": setup, "identity": {"kind": "fake", "id": "1", "words": "account 1"},
        "accelerators": [{"name": "V100-16GB", "count": 1, "memory_gib": 16, "share": 1.0, "of": None}],
        "guards": {"agent": "ends", "timer": "none", "follows": False},
        "terms": {"home": "/home", "policy": text | {"tz": "UTC"}, "limits": [text], "price_jump": "2"},
    }  # fmt: skip
    here = {"address": {"host": "192.0.2.1", "port": 22, "user": "ubuntu"}}
    said = {
        "warning_sent": {"rule": "idle", "due": iso(at(90)), "why": "idle"},
        "decision_made": {
            "do": "nothing", "rule": "lease", "why": "it lives", "activity": "BUSY", "at": None
        },
        "machine_shared": {"key": "SHA256:a", "label": "bob", "from": None, "host_key": None},
        "resources_retained": {"retained": [KEPT]},
        "traffic_observed": {
            "bytes_out": 1, "since": iso(at(5)), "until": iso(at(40)), "counted": 1, "stored_as": "out", "per": "gb",
            "nanos": 1, "source": "a list", "as_of": None, "basis": "listed", "why_maybe_less": "", "by_size": True,
        },
        "action_refused": {"action": "stop", "why": "it is protected", "next": "Lift that."},
    }  # fmt: skip
    up, down = seen(seconds=5), seen(state="stopped", seconds=20)
    return [
        replace(intended(), body=intended().body | more), replace(up, body=up.body | here), priced(5, seconds=9), down,
        replace(seen(seconds=30), body=up.body | here),
        *(Draft(kind, "cg-1", body, at(40), kind) for kind, body in said.items()),
        seen(state="stopped", seconds=60), seen(seconds=70),
        Draft("warning_sent", "cg-1", said["warning_sent"], at(71), "again"),
        Draft("action_refused", "cg-1", said["action_refused"], at(72), "again refused"),
    ]  # fmt: skip


def inside(value, place="a machine"):
    """Every value that a machine is made of, itself first, each with its place."""
    yield place, value
    if isinstance(value, tuple):
        names = getattr(value, "_fields", range(len(value)))
        parts = zip(names, value, strict=True)
    else:
        parts = value.items() if isinstance(value, Mapping) else ()
    for name, one in parts:
        yield from inside(one, f"{place}, {name}")


def test_no_reader_can_change_what_the_ledger_hands_to_all(tmp_path):
    reader = opened(tmp_path)
    reader.append(life())
    (row,), text = reader.machines(), repr(reader.machines())
    assert reader.machine("cg-1") is row, "the same object for every caller"
    found = list(inside(row))
    assert {
        "HourlyPrice",
        "AttachedCost",
        "Usage",
        "PriceInterval",
        "ChargeNote",
        "SentWarning",
        "SharedKey",
        "Retained",
    } < {type(value).__name__ for _, value in found}
    for place, value in found:
        assert value is None or isinstance(value, (str, int, float, tuple, MappingProxyType)), place
        for name in getattr(value, "_fields", ()):
            with pytest.raises(AttributeError):
                setattr(value, name, "changed")
        if isinstance(value, tuple) and value:
            with pytest.raises(TypeError):
                value[0] = "changed"
        if isinstance(value, Mapping):
            for key in (*value, "another"):
                with pytest.raises(TypeError):
                    value[key] = "changed"
                with pytest.raises(TypeError):
                    del value[key]
    assert [place for place, value in found if isinstance(value, MappingProxyType) and value] == [
        "a machine, usage_totals", "a machine, charge_notes", "a machine, warnings", "a machine, shared"
    ]  # fmt: skip
    assert reader.machine("cg-1")._replace(name="changed").name == "changed", "that is its reader's own"
    assert repr(reader.machines()) == text
    assert reader.machines() == opened(tmp_path).machines()
