"""What the policy's word on machines that cannot be stopped becomes in a launch on AWS, read back with plain boto3."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudgpu.core.model.offers import Market
from tests.clouds.aws.plain import client
from tests.providers.aws.accounts import account, own
from tests.providers.aws.attempts import USUAL, attempt_at, offered, quick, soon

GOES = replace(USUAL, keep_disk=False)


@pytest.fixture
def provider(aws, tmp_path):
    return quick(account(tmp_path))


def spot(provider):
    return offered(provider, market=Market.SPOT)


def disks():
    return [one["VolumeId"] for one in client().describe_volumes()["Volumes"]]


@pytest.mark.parametrize("end", ["interrupt", "shut_down"])
@pytest.mark.parametrize(("setup", "left"), [(USUAL, 1), (GOES, 0)])
def test_the_disk_of_a_spot_machine_that_ended_by_itself_stays_or_goes_as_the_launch_said(
    aws, provider, setup, left, end
):
    made = provider.launch(attempt_at(provider, spot(provider), setup=setup), deadline=soon())
    getattr(aws, end)(own(made.id))
    aws.advance(600)
    assert len(disks()) == left


def test_what_goes_with_its_machine_is_not_said_to_stay(provider):
    item = spot(provider)
    for setup, stays in ((USUAL, True), (GOES, False)):
        found = provider.resolve(attempt_at(provider, item, setup=setup).request, item)
        assert [one.what for one in found.attached if one.while_stopped] == (
            ["image of 64 GB while parked"] if stays else []
        )
        assert ("its disk stays" in found.guards[1], "its disk is deleted" in found.guards[1]) == (stays, not stays)


def test_a_machine_that_can_be_stopped_keeps_its_disk_over_a_stop_whatever_the_policy(provider):
    item = offered(provider)
    found = provider.resolve(attempt_at(provider, item, setup=GOES).request, item)
    assert found.attached[0].while_stopped
    assert found.guards[1].endswith("which stops it; its disk stays")
