"""How many pages a listing takes on our model of Google Cloud: one for each 500 machines, and no machine is missed."""

from __future__ import annotations

import pytest

from cloudgpu.errors import ProviderUnavailable
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.providers.gcp.accounts import TAGS, account, calls

__all__ = ["gcp", "gcp_process"]
LIST = "compute.instances.aggregatedList"


@pytest.mark.parametrize(
    ("many", "pages"),
    [
        (500, 1),
        pytest.param(501, 2, marks=pytest.mark.soak),
        pytest.param(1001, 3, marks=pytest.mark.soak),
    ],
)
def test_a_list_is_a_page_for_each_500_machines_and_misses_none(gcp, tmp_path, many, pages):
    cloud = account(gcp, tmp_path)
    for number in range(many):
        gcp.make(f"m-{number}", f"us-central1-{'abcf'[number % 4]}", labels=TAGS, guestAccelerators=[])
    with calls(gcp) as asked:
        found = cloud.list().instances
    assert (asked, len({one.id for one in found})) == ([LIST] * pages, many)


@pytest.mark.parametrize(("status", "sends"), [(501, 1), (503, 5)])
def test_a_call_that_a_server_does_not_have_is_not_sent_again(gcp, tmp_path, status, sends):
    gcp.faults.add(LIST, error="backendError", status=status, times=9)
    with calls(gcp) as asked, pytest.raises(ProviderUnavailable):
        account(gcp, tmp_path).list()
    assert asked == [LIST] * sends
