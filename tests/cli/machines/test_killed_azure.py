"""A command killed at its launch or its end on our model of Azure; at every change: tests/soak/test_crash_azure."""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.soak.crash_azure import HEADLINE, SDK, AzureLife
from tests.soak.crash_cloud import Moment

__all__ = ["azure_arm", "azure_process"]


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*SDK)
    yield many
    many.close()


@pytest.mark.soak
def test_a_launch_and_an_end_that_were_killed_are_finished_by_the_same_again(azure_arm, tmp_path, forks):
    life = AzureLife(azure_arm, tmp_path / "home", forks)
    assert life.killed(*HEADLINE, at=Moment("VirtualMachines.CreateOrUpdate", 1, "after"))
    assert len(azure_arm.instances()) == 1
    life.check_one()  # by the names that follow from the saved call's token: nothing has been listed yet
    assert life.killed("down", "--all", "--yes", at=Moment("ResourceGroups.Delete", 1, "before"))
    assert len(azure_arm.instances()) == 1
    life.check_known()
    life.check_down_leaves_nothing()
