"""At which address the daemons of a cluster listen."""

from __future__ import annotations

from types import SimpleNamespace

from cloudgpu.control.clusters.engine import ALL_ADDRESSES, _listen_address
from tests.core.clusters.saying import node


def test_daemons_listen_at_their_nodes_address_alone_where_each_name_means_that():
    own = [node(0, named="10.0.0.5"), node(1, named="10.0.0.6")]
    assert [_listen_address(own, SimpleNamespace(node=number)) for number in (0, 1)] == ["10.0.0.5", "10.0.0.6"]
    assert _listen_address([own[0], node(1, named="127.0.1.1")], SimpleNamespace(node=0)) == ALL_ADDRESSES
