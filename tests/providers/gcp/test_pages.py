"""How many pages a listing takes on our model of Google Cloud: one for each 500 machines, and no machine is missed."""

from __future__ import annotations

import pytest

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
