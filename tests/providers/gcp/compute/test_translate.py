"""What Google says of a machine, as ours: every state, every type, and answers that lack what they may."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloudgpu.core.model.instances import Address, State
from cloudgpu.core.model.offers import Accelerator, Market
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.compute.translate import instance
from cloudgpu.providers.gcp.network import firewall_rules as rules

BARE = {"name": "cg-1", "zone": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a"}
FULL = {
    **BARE,
    "status": "RUNNING",
    "machineType": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a/machineTypes/n1-standard-4",
    "guestAccelerators": [{"acceleratorType": "projects/p/x/nvidia-tesla-v100", "acceleratorCount": 1}],
    "labels": {"cloudgpu-id": "cg-0", "team": "x"},
    "scheduling": {"provisioningModel": "SPOT"},
    "creationTimestamp": "2026-11-21T01:00:00.123-08:00",
    "lastStartTimestamp": "2026-11-21T02:00:00.000-08:00",
    "networkInterfaces": [{"networkIP": "10.128.0.2", "accessConfigs": [{"natIP": "203.0.113.9"}]}],
}


def seen(found, **more):
    return instance(found, account="lab", ssh_port=22, **more)


def test_a_machine_is_told_in_our_words():
    made = seen(FULL)
    assert (made.id, made.region, made.zone) == ("us-central1-a/cg-1", "us-central1", "us-central1-a")
    assert (made.instance_type, made.market) == ("n1-standard-4+v100:1", Market.SPOT)
    assert made.accelerators[0].name == "V100-16GB"
    assert made.tags == {"cloudgpu-id": "cg-0"}
    assert made.address == Address("203.0.113.9", 22, "cloudgpu")
    assert made.since == datetime(2026, 11, 21, 10, tzinfo=UTC)
    assert made.launched_at == datetime(2026, 11, 21, 9, 0, 0, 123000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "state", "billed"),
    [
        ("PROVISIONING", State.PENDING, True),
        ("STAGING", State.PENDING, True),
        ("REPAIRING", State.PENDING, True),
        ("RUNNING", State.RUNNING, True),
        ("PENDING_STOP", State.STOPPING, True),
        ("STOPPING", State.STOPPING, True),
        ("DEPROVISIONING", State.STOPPING, True),
        ("SUSPENDED", State.STOPPED, True),
        ("TERMINATED", State.STOPPED, False),
        ("NEVER_SEEN", State.UNKNOWN, True),
    ],
)
def test_only_what_is_terminated_is_not_billed(status, state, billed):
    made = seen({**FULL, "status": status})
    assert (made.state, made.billed) == (state, billed)
    assert (made.address is None) is (state not in (State.PENDING, State.RUNNING))


def test_an_answer_may_lack_all_that_it_may_lack():
    made = seen(BARE)
    assert (made.state, made.billed, made.tags, made.address) == (State.UNKNOWN, True, {}, None)
    assert (made.since, made.launched_at, made.accelerators) == (None, None, ())
    assert seen({**BARE, "status": "RUNNING", "lastStartTimestamp": "yesterday"}).since is None


def test_a_gpu_that_the_catalogue_lacks_is_called_as_google_calls_it():
    new = {"acceleratorType": "x/nvidia-r9000", "acceleratorCount": 2}
    assert seen({**FULL, "machineType": "x/z9-1", "guestAccelerators": [new]}).accelerators == (
        Accelerator("nvidia-r9000", 2),
    )


def test_a_reason_is_that_of_an_end():
    assert seen(FULL, reason="interrupted").reason is None
    assert seen({**FULL, "status": "TERMINATED"}, reason="interrupted").reason == "interrupted"


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-central1-a", "us-central1"),
        ("us-central1-ai1a", "us-central1"),
        ("us-central1", None),
        ("us-east-1a", None),
    ],
)
def test_a_zone_is_one_of_googles(zone, region):
    assert ids.region_of(zone) == region


@pytest.mark.parametrize("text", ["", "us-central1-a", "us-central1/cg-1", "us-central1-a/CG-1", "us-central1-a/cg-1 "])
def test_what_is_no_id_is_refused(text):
    with pytest.raises(InvalidRequest):
        ids.zone_and_name(text)


def test_a_rule_of_somebody_elses_is_none_of_ours():
    made = rules.allow_rule("projects/p/global/networks/n", "us-central1-a/cg-1", "caller", "203.0.113.7/32", 22, {})
    assert rules.parse_rule(made).machine == "us-central1-a/cg-1"
    for description in (
        "",
        "not JSON",
        "[]",
        '{"machine": "i-1", "label": "caller"}',
        '{"machine": "us-central1-a/x"}',
    ):
        assert rules.parse_rule({**made, "description": description}) is None
    assert rules.parse_rule({"name": "default-allow-ssh"}) is None
    assert len(rules.allow_rule_name("us-central1-a/" + "a" * 63, "x" * 100)) <= 63
