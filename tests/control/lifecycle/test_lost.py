"""What is recorded as gone with `down --lost`, and what is refused because it can be reached."""

from __future__ import annotations

import pytest

from cloudgpu.control.lifecycle.lost import record_as_lost
from cloudgpu.errors import InvalidRequest


def test_the_way_out_for_a_node_that_can_be_reached_is_to_end_its_cluster(lab):
    node = lab.up(nodes=2, name="train").nodes[1]
    with pytest.raises(InvalidRequest, match="train-1 can be reached from here") as refused:
        record_as_lost(lab.session, node, "it was closed")
    assert refused.value.next == "Run: cloudgpu down train"
