"""The types of stored records say what is stored: a key that one has and the other has not is a defect."""

from __future__ import annotations

from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

import pytest

from cloudgpu.core.billing import charge_notes
from cloudgpu.core.billing.usage import Segment, Use
from cloudgpu.core.events.log import Said
from cloudgpu.core.events.projection import machine_row
from cloudgpu.core.launch.attempt import setup_from_json
from cloudgpu.core.model import records
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import Address
from cloudgpu.core.model.launch import Network, Setup, Volume, setup_to_json
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import iso

AT = iso(datetime(2026, 11, 20, tzinfo=UTC))
NETWORK = Network(("10.0.0.0/8",), "net", "sg", public_ip=False, jump="me@host:22")
SETUP = Setup("ami-1", 200, Volume("data", 50), persistent=True, network=NETWORK, keep_disk=False)


def test_a_machine_has_the_keys_that_its_type_requires_and_no_other():
    body = {"attempt": 1, "token": "t", "price": None, "terms": {"home": "h"}, "policy_by": "ada"}
    row = machine_row([Said(1, AT, "launch_intended", "cg-1", "intent:t", body)])
    assert row is not None
    said = {"terms", "policy_by"}
    assert set(row) - said == {name for name in Machine.__annotations__ if name not in OPTIONAL}
    assert said <= OPTIONAL


OPTIONAL = set("policy_by timer warnings decision refused taken_at shared unasked terms".split())


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (records.UsageRecord, Use),
        (records.SegmentRecord, Segment),
        (records.IdentityRecord, AccountIdentity),
        (records.AddressRecord, Address),
        (records.SetupRecord, Setup),
        (records.NetworkRecord, Network),
        (records.VolumeRecord, Volume),
    ],
)
def test_a_record_has_the_fields_of_its_value(record: Any, value: Any):
    assert set(record.__annotations__) == {one.name for one in fields(value)}


def test_a_charge_note_has_the_keys_of_its_type():
    assert set(charge_notes.empty()) == set(records.ChargeNote.__annotations__)


@pytest.mark.parametrize("setup", [Setup(), SETUP])
def test_a_setup_is_stored_whole_and_comes_back(setup: Setup):
    stored = setup_to_json(setup)
    network = stored["network"]
    assert setup_from_json(stored) == setup
    assert {**stored, "network": {**network, "ssh_from": tuple(network["ssh_from"])}} == asdict(setup)
