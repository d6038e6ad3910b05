"""Which nodes can be one cluster, and what is said of those that cannot."""

from __future__ import annotations

import pytest

from cloudgpu.core.clusters.fit import check_fit, check_people, version_fault
from cloudgpu.core.clusters.nodes import version_of
from cloudgpu.errors import InvalidRequest
from tests.core.clusters.saying import node


def refused(*nodes):
    with pytest.raises(InvalidRequest) as error:
        check_fit(nodes)
    assert (error.value.exit_code, error.value.field) == (2, "engine")
    return error.value.message, error.value.next


def test_nodes_that_say_the_same_fit():
    check_fit([node(number) for number in range(4)])


@pytest.mark.parametrize(
    ("controller", "other", "why"),
    [
        ("22.05.8", "22.05.9", None),
        ("22.05.8", "21.08.5", None),
        ("23.11.4", "22.05.8", None),
        ("23.11.4", "21.08.5", "a controller takes nodes up to 2 releases back, and this one is 3 back"),
        ("21.08.5", "22.05.8", "the controller, which is on node 0, may not be older than the others"),
        ("24.05.0", "23.02.1", None),
        ("24.05.0", "22.05.8", "a controller takes nodes up to 2 releases back, and this one is 3 back"),
        ("24.11.0", "23.02.1", None),
        ("24.11.0", "22.05.8", "a controller takes nodes up to 3 releases back, and this one is 4 back"),
        ("25.11.0", "24.05.3", None),
        ("26.05.0", "24.05.3", "a controller takes nodes up to 3 releases back, and this one is 4 back"),
    ],
)
def test_a_controller_takes_nodes_of_its_release_and_a_few_before(controller, other, why):
    assert version_fault(version_of(controller), version_of(other)) == why


def test_versions_that_cannot_talk_are_refused_with_both():
    said, way_out = refused(node(0, version="slurm-wlm 22.05.8"), node(1, version="slurm 23.11.4"))
    assert said == (
        "train-0 has Slurm 22.05.8 and train-1 has 23.11.4: "
        "the controller, which is on node 0, may not be older than the others."
    )
    assert way_out == "Use machines with the same release of their system, or --engine none."


def test_every_machine_without_slurm_is_named_with_the_command_that_installs_it():
    said, way_out = refused(node(0, version=None), node(1), node(2, munge=False))
    assert said == "train-0 and train-2 have no Slurm, which the engine slurm needs on every machine."
    assert "sudo apt-get install -y slurm-wlm munge" in way_out
    assert way_out.index("systemctl mask") < way_out.index("apt-get")


@pytest.mark.parametrize(("apart", "fits"), [(300.0, True), (300.5, False)])
def test_clocks_may_be_five_minutes_apart(apart, fits):
    nodes = node(0, ahead_s=-100.0), node(1), node(2, ahead_s=apart - 100)
    if fits:
        check_fit(nodes)
    else:
        assert refused(*nodes)[0].startswith("The clock of train-2 is 300 s ahead of that of train-0; munge refuses")


def test_a_user_with_two_numbers_is_refused_by_name_and_so_is_a_person_who_was_named():
    said, _ = refused(node(0), node(1, uid=1001))
    assert said.startswith("ada has user id 1000 on train-0 and 1001 on train-1; ")
    said, _ = refused(node(0, people={"bob": 1005}), node(1, people={"bob": 1006}))
    assert said.startswith("bob has user id 1005 on train-0 and 1006 on train-1; ")


def test_an_address_that_only_one_computer_has_is_no_address_of_a_cluster_of_two():
    said, _ = refused(node(0, address="127.0.0.1"), node(1))
    assert said.startswith("train-0 was reached at 127.0.0.1, an address that only the computer itself has; train-1")
    check_fit([node(0, address="127.0.0.1", host="same"), node(1, address="127.0.0.1", host="same")])


def test_a_queue_for_several_people_says_all_that_is_missing():
    check_people([node(0), node(1)], ["ada"])
    with pytest.raises(InvalidRequest) as error:
        check_people([node(0, people={"bob": 5}), node(1, people={"bob": None}, root=True)], ["ada", "bob"])
    assert error.value.message == (
        "A queue that runs jobs of bob lacks an account of bob on train-1; sudo without a password for ada on train-0."
    )
    assert (error.value.field, error.value.exit_code) == ("queue_for", 2)
    check_people([node(0, people={"bob": 5}, root=True), node(1, people={"bob": 5}, root=True)], ["ada", "bob"])


@pytest.mark.parametrize(
    "said",
    [
        {"hostname": "a\nSlurmUser=root"},
        {"address": "10.0.0.1 Port=1"},
        {"gpus": ["/dev/nvidia0 Name=gpu"]},
        {"home": "/home/a b"},
        {"cores": 0},
        {"cores": True},
        {"user": "ada\n"},
        {"environ": {"X;rm": "1"}},
        {"environ": {"PATH": "a\nb"}},
        {"ports": [0, None]},
    ],
)
def test_what_a_node_says_never_reaches_a_file_unchecked(said):
    with pytest.raises(ValueError, match=r"it said|Slurm cannot"):
        node(0, **said)
