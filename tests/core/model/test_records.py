"""The types of stored records say what is stored, and a machine says the same: what only one of them has is a defect.

A machine is a value: whoever was given one has it as it was, and nobody changes it for anybody else.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from cloudgpu.core.events.log import Event, EventSummary
from cloudgpu.core.events.projection import project
from cloudgpu.core.launch.attempt import setup_from_json
from cloudgpu.core.model import facts, records
from cloudgpu.core.model.facts import record_of
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import Address
from cloudgpu.core.model.launch import Network, Setup, Volume, setup_to_json
from cloudgpu.core.model.machine import Machine, Ownership
from cloudgpu.core.model.usage import PriceInterval, Usage
from cloudgpu.core.values.times import iso
from tests.core.lives import HOUR_NANOS, asked, at, intent, line, price, priced, seen, settled

AT = iso(datetime(2026, 11, 20, tzinfo=UTC))
NETWORK = Network(("10.0.0.0/8",), "net", "sg", public_ip=False, jump="me@host:22")
SETUP = Setup("ami-1", 200, Volume("data", 50), persistent=True, network=NETWORK, keep_disk=False)
SUBJECTS = (Ownership,)
VALUE_OF = {
    records.IdentityRecord: facts.RecordedIdentity,
    records.AddressRecord: facts.MachineAddress,
    records.PriceRecord: facts.HourlyPrice,
    records.AcceleratorRecord: facts.MachineGpus,
    records.AttachedCostRecord: facts.AttachedCost,
    records.RetainedRecord: facts.Retained,
    records.VolumeRecord: facts.NamedVolume,
    records.NetworkRecord: facts.MachineNetwork,
    records.SetupRecord: facts.MachineSetup,
    records.GuardsRecord: facts.MachineGuards,
    records.PolicyTextRecord: facts.TermsText,
    records.TermsRecord: facts.Terms,
    records.ClusterRecord: facts.ClusterNode,
    records.TrafficPricesRecord: facts.RecordedTrafficPrices,
}
PARTS = {records.RateRecord, records.TextRecord}  # of other records: no value has only these
OF_RUNS = {records.ScheduledRunRecord, records.CreditRecord}  # what a run of the reaper says, of no machine


NOT_OF_LIMITS = {facts.TermsText: {"tz"}}  # two records have this value: only a policy's text has a zone
ALWAYS_WRITTEN = {facts.MachineGpus: {"of"}}  # though nobody needs it to be there


def is_value(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


VALUES = {one for _, one in inspect.getmembers(facts, is_value)} | {Machine, *SUBJECTS}  # Use and Segment among them


def optional(record: Any) -> set[str]:
    """Return the keys that a record may lack."""
    hints = get_type_hints(record, include_extras=True)
    return record.__optional_keys__ | {name for name, kind in hints.items() if get_origin(kind) is NotRequired}


def test_each_record_has_a_value() -> None:
    assert {one for _, one in inspect.getmembers(records, is_typeddict)} == VALUE_OF.keys() | PARTS | OF_RUNS


@pytest.mark.parametrize("record", VALUE_OF)
def test_a_record_has_the_fields_of_its_value(record: Any) -> None:
    value = VALUE_OF[record]
    whole = value._make("x" for _ in value._fields)
    assert record_of(whole).keys() == record.__annotations__.keys()


@pytest.mark.parametrize("record", VALUE_OF)
def test_what_a_record_may_lack_is_what_its_value_needs_not(record: Any) -> None:
    value = VALUE_OF[record]
    stored = record_of(value._make(value._field_defaults.get(name) or name for name in value._fields))
    keys = dict(zip(value._fields, stored, strict=True))
    may_lack = {keys[name] for name in value._field_defaults}
    assert may_lack == (optional(record) | NOT_OF_LIMITS.get(value, set())) - ALWAYS_WRITTEN.get(value, set())
    least = value._make(None for _ in value._fields)
    assert record_of(least).keys() == record.__annotations__.keys() - may_lack


def test_the_text_of_limits_has_no_zone() -> None:
    text = facts.TermsText("/limits.yaml", "max_price: 4\n")
    assert record_of(text).keys() == records.TextRecord.__annotations__.keys()


@pytest.mark.parametrize("value", [Usage, PriceInterval])
def test_a_usage_is_stored_whole(value: Any) -> None:
    assert tuple(record_of(value._make(None for _ in value._fields))) == value._fields


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_subject_says_of_a_machine_what_the_machine_says_itself(subject: Any) -> None:
    own, whole = get_type_hints(subject), get_type_hints(Machine)
    assert own == {name: whole[name] for name in own}


def test_a_machine_has_the_keys_that_its_type_requires_and_no_other() -> None:
    terms = {"home": "h", "policy": None, "limits": [], "price_jump": "2"}
    body = {"attempt": 1, "token": "t", "price": None, "terms": terms, "policy_by": "ada"}
    found = project([EventSummary(1, AT, "launch_intended", "cg-1", "intent:t", body)])
    assert found is not None
    row, said = found.state["row"], {"terms", "policy_by"}
    assert set(row) - said == {name for name in Machine._fields if name not in OPTIONAL}
    assert said <= OPTIONAL


OPTIONAL = set(
    "policy_by timer warnings decision refused_action taken_at shared unrequested_stop terms interrupted_at "
    "cluster trust traffic_prices last_request".split()
)


def test_what_a_machine_may_lack_is_what_is_there_only_where_something_was_said() -> None:
    assert Machine._field_defaults.keys() == OPTIONAL


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (records.AddressRecord, Address),
        (records.SetupRecord, Setup),
        (records.NetworkRecord, Network),
        (records.VolumeRecord, Volume),
    ],
)
def test_a_record_has_the_fields_of_what_it_was_made_of(record: Any, value: Any) -> None:
    assert set(record.__annotations__) == {one.name for one in fields(value)}


def test_an_identity_is_stored_with_its_name_and_comes_back() -> None:
    stored = AccountIdentity("aws account", "123456789012", "AWS account 123456789012").to_json()
    assert set(stored) == set(records.IdentityRecord.__annotations__)
    recorded = facts.RecordedIdentity.of(stored)
    assert (recorded.display_name, record_of(recorded)) == ("AWS account 123456789012", stored)


@pytest.mark.parametrize("setup", [Setup(), SETUP])
def test_a_setup_is_stored_whole_and_comes_back(setup: Setup) -> None:
    stored = setup_to_json(setup)
    network = stored["network"]
    assert setup_from_json(stored) == setup
    assert {**stored, "network": {**network, "ssh_from": tuple(network["ssh_from"])}} == asdict(setup)
    assert facts.MachineSetup.of(stored).record() == stored


# --- a machine of which everything is known -------------------------------------------------------------------------

RATE = {"per": "month", "nanos": 80_000_000, "source": "a list", "as_of": AT, "basis": "listed"}
RATE |= {"why_maybe_less": "a part of it may be free", "by_size": False}
DISK = {"what": "disk", "resource": "disk", "stored_as": "gp3", "quantity": 100, "nanos_per_month": 8_000_000_000}
DISK |= RATE | {"at_most": True, "running": True, "kept": True, "named": False}
IMAGE = {"id": "ami-1", "kind": "image", "region": "r", "zone": "z", "size_gb": 100, "stored_as": "snapshot"}
IMAGE |= RATE | {"made_at": at(1), "ready": True, "nanos_per_month": 5_000_000_000, "attached_to": "i-1"}
IMAGE |= {"name": "data", "provider": "aws", "account": "lab", "alive_at": at(2)}
TERMS = {
    "home": "h",
    "policy": {"place": "/lab.yaml", "text": "name: lab\n", "tz": "Europe/Berlin"},
    "limits": [{"place": None, "text": "max_price: 4\n"}],
    "price_jump": "1.5",
}
LAUNCH = {
    "provider": "aws", "market": "spot", "licence": "suse", "max_price": 2 * HOUR_NANOS, "seq": 7, "renew_s": 3600,
    "accelerators": [{"name": "V100", "count": 1, "memory_gib": 16.0, "share": 0.5, "of": 4}],
    "setup": setup_to_json(SETUP), "trust": "community",
    "guards": {"agent": "ends", "timer": "cloud", "follows": True, "tagged": False, "alone": True, "waived": True},
    "traffic_prices": {"out": 4_000_000, "into": 2_000_000},
    "stop_effect": "it keeps its disk", "attached_costs": [DISK], "terms": TERMS, "on_demand": price(2 * HOUR_NANOS),
    "cluster": facts.ClusterNode("train", "cg", 1, 4, "slurm", "stop").record(),
}  # fmt: skip
TRAFFIC = {"bytes_out": 10**6, "since": at(3600), "until": at(7200), "counted": 10**6, "stored_as": "egress"}
DECISION = {"do": "keep", "rule": "lease", "why": "so", "activity": "ACTIVE", "at": at(99_000), "host": "here"}
KEY = {"key": "SHA256:x", "label": "bob", "from": "10.0.0.0/8", "host_key": "ssh-ed25519 x"}
REFUSED = {"action": "terminate", "why": "a lock keeps it", "next": "az lock delete"}
LIFE = [
    intent(0, 10**9, **LAUNCH),
    settled(1, "made"),
    seen(60, "running", billed=True, since=10, launched_at=at(5), last_active=at(50)),
    priced(1800, 2 * HOUR_NANOS),
    line(7201, "traffic_observed", TRAFFIC | RATE | {"per": "gb"}),
    line(7202, "hold_set", {"until": at(99_000)}),
    seen(
        9000, "stopped", billed=False, since=8000, reason="interrupted", launched_at=at(5), last_active=at(7000),
        address={"host": "198.51.100.20", "port": 22, "user": "ubuntu"},
    ),
    line(9001, "resources_retained", {"retained": [IMAGE]}),
    line(9002, "warning_sent", {"rule": "lease", "due": at(9900), "why": "it ends", "how": ["mail"]}),
    line(9003, "decision_made", DECISION),
    line(9004, "timer_set", {"at": at(99_000), "why": "launched"}),
    line(9005, "machine_shared", KEY),
    line(9006, "action_refused", REFUSED),
    line(9007, "interruption_simulated", {"at": at(9900)}),
    asked(9008, "stop"),
    line(9009, "spot_interrupted", {"how": "provider", "noticed_at": None, "ran_s": 9.0, "nanos": 1, "free": ""}),
]  # fmt: skip


def rich(lines: list[Event] = LIFE) -> dict[str, Any]:
    """Return the record that these lines fold to."""
    found = project([Event(number, *[getattr(one, name) for name in Event.__slots__[1:]]) for number, one in
                    enumerate(lines, 1)])  # fmt: skip
    assert found is not None
    row: dict[str, Any] = found.state["row"]
    return row


NOTHING_TO_SAY = {"is_named_resource", "billed", "terminated_at", "launch_failed", "parked", "discard", "unpriced"}


def test_everything_is_known_of_the_machine_of_these_tests() -> None:
    """What follows is held for each field, so each has to say something."""
    made = Machine.of(rich())
    assert {name for name, one in made._asdict().items() if one in (None, "", (), {}, False)} <= NOTHING_TO_SAY
    found = {type(one) for one in values(made) if is_value(type(one))}
    assert found == VALUES - set(SUBJECTS)


def test_the_record_of_a_machine_is_the_one_that_it_was_made_of() -> None:
    record = rich()
    made = Machine.of(record)
    assert record_of(made) == record == json.loads(json.dumps(record_of(made)))
    assert Machine.of(record_of(made)) == made


@pytest.mark.parametrize("many", range(1, len(LIFE)))
def test_a_machine_of_which_less_is_known_comes_back_from_its_record(many: int) -> None:
    made = Machine.of(rich(LIFE[:many]))
    assert Machine.of(json.loads(json.dumps(record_of(made)))) == made


# --- nobody changes a machine ---------------------------------------------------------------------------------------


def values(one: Any) -> Iterator[Any]:
    """Yield a value and all that is in it."""
    yield one
    if isinstance(one, Mapping):
        for key, value in one.items():
            yield key
            yield from values(value)
    elif isinstance(one, (tuple, list)):
        for value in one:
            yield from values(value)


@pytest.mark.parametrize("many", range(1, len(LIFE) + 1))
def test_nothing_in_a_machine_can_be_changed(many: int) -> None:
    for one in values(Machine.of(rich(LIFE[:many]))):
        plain = type(one) in (str, int, float, bool, NoneType, tuple, MappingProxyType)
        assert plain or isinstance(one, StrEnum) or type(one) in VALUES, repr(one)


def test_a_machine_takes_no_new_value_for_a_field_and_no_new_entry() -> None:
    made: Any = Machine.of(rich())
    for where, name in ((made, "name"), (made, "warnings"), (made.price, "source"), (made.open_usage[0], "end")):
        with pytest.raises(AttributeError):
            setattr(where, name, None)
    for entries in (made.warnings, made.shared, made.usage_totals, made.charge_notes, made.open_usage):
        with pytest.raises(TypeError):
            entries["x"] = None


def test_what_becomes_of_its_record_later_does_not_change_a_machine() -> None:
    record = rich()
    made, before = Machine.of(record), Machine.of(json.loads(json.dumps(record)))
    for one in list(values(record)):
        if isinstance(one, list):
            one.clear()
        elif isinstance(one, dict):
            for key in one:
                one[key] = None
    assert made == before


def leaves(kind: Any) -> Iterator[Any]:
    """Yield what an annotation is made of."""
    if get_origin(kind) in (Union, UnionType, tuple, Mapping):
        for part in get_args(kind):
            yield from leaves(part)
    elif get_origin(kind) is not Literal:
        yield kind


@pytest.mark.parametrize("value", sorted(VALUES, key=lambda one: one.__name__))
def test_no_field_may_be_anything_or_a_list(value: Any) -> None:
    for name, kind in get_type_hints(value).items():
        for one in leaves(kind):
            plain = one in (str, int, float, bool, NoneType, Ellipsis) or one in VALUES
            assert plain or issubclass(one, StrEnum), (name, one)
