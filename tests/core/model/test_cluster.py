"""Which machine is which node of a cluster, by its tags: those of one call for all, and those of one launch each."""

from __future__ import annotations

from cloudgpu.core.model.cluster import node_key, node_of_tags, shared_tags, tags_of_node
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_ID, TAG_KEY, TAG_NAME, TAG_NODE, TAG_OWNER
from cloudgpu.core.values.naming import derived_key, lock_name


def tags_of(node: int) -> dict[str, str]:
    return {
        TAG_ID: f"cg-0123456789abcdef-{node}",
        TAG_NAME: f"train-{node}",
        TAG_KEY: node_key("auto-00000000000000000000-1", node),
        TAG_OWNER: "ada",
        TAG_CLUSTER: ClusterNode("", "", 0, 4, "slurm", "stop").tag(),
        TAG_NODE: str(node),
    }


def test_the_shared_tags_of_one_call_become_each_nodes_own_by_its_index() -> None:
    own = [tags_of(node) for node in range(4)]
    shared = shared_tags(own)
    assert TAG_NODE not in shared
    assert shared[TAG_ID] == "cg-0123456789abcdef"
    assert shared[TAG_NAME] == "train"
    assert [tags_of_node(shared, node) for node in range(4)] == own


def test_a_machine_of_its_own_and_a_node_that_is_named_keep_their_tags() -> None:
    alone = {TAG_ID: "cg-1", TAG_NAME: "brave-otter"}
    assert tags_of_node(alone, 3) is alone
    assert tags_of_node(tags_of(2), 0) == tags_of(2)
    assert node_of_tags(alone) is None


def test_tags_say_which_node_a_machine_is_and_anything_else_there_says_nothing() -> None:
    assert node_of_tags(tags_of(2)) == ClusterNode("train", "cg-0123456789abcdef", 2, 4, "slurm", "stop")
    for word in ("", "four-slurm-wait", "4", "4-ray-wait", "4-slurm-wait-1"):
        assert node_of_tags(tags_of(2) | {TAG_CLUSTER: word}) is None
    assert node_of_tags(tags_of(2) | {TAG_NODE: "two"}) is None


def test_all_nodes_of_a_cluster_and_all_generations_share_one_lock() -> None:
    key = derived_key("ab" * 32, 1)
    assert {lock_name(node_key(key, node)) for node in range(64)} == {lock_name(key)}
    assert lock_name(node_key("sweep", 3)) == lock_name("sweep") != lock_name("sweep-3")
