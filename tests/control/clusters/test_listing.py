"""How clusters are listed: a line each, whatever their size, in as many calls as one machine takes."""

from __future__ import annotations

import io
from threading import Lock

import pytest

from cloudgpu.cli.clusters.exec import NodeOutput
from cloudgpu.cli.clusters.listing import listing_table
from cloudgpu.control.api.show import show_document
from cloudgpu.control.clusters.power import stop_all
from cloudgpu.control.inventory.listing import list_machines


def line(lab, **more):
    """The line of the cluster in the table of `ls`."""
    document = list_machines(lab.session, **more)
    (found,) = [line for line in listing_table(document, lab.clock(), me=None).splitlines() if line.startswith("train")]
    return found.split()


def calls(lab, **more):
    before = lab.cloud.calls
    document = list_machines(lab.session, refresh=True, **more)
    return lab.cloud.calls - before, document


def test_64_nodes_are_one_line_in_as_many_calls_as_one_machine(lab):
    lab.up(name="fox")
    one, _ = calls(lab)
    lab.gang(64)
    many, document = calls(lab)
    assert many == one
    assert len(document["machines"]) == 65
    (cluster,) = document["clusters"]
    assert (cluster["name"], cluster["there"], len(cluster["nodes"])) == ("train", 64, 64)
    assert len(listing_table(document, lab.clock(), me=None).splitlines()) == 3
    assert line(lab)[:6] == ["train", "64/64", "fake", "64", "x", "fake.v100.1"]


def test_the_line_has_the_sum_of_prices_and_says_what_is_missing_and_what_is_stopped(lab, gang):
    hourly = gang[0].price.nanos_per_hour / 10**9
    assert line(lab)[1:7] == ["4/4", "fake", "4", "x", "fake.v100.1", f"${4 * hourly:.4f}"]
    lab.cloud.terminate(gang[2].provider_id)
    assert line(lab, refresh=True)[1:8] == ["3/4", "degraded", "fake", "3", "x", "fake.v100.1", f"${3 * hourly:.4f}"]
    rest = lab.session.find_all_nodes("train", "stop")
    stop_all(lab.session, rest[:1], why="a test")
    assert line(lab)[1:8] == ["3/4", "degraded:", "1", "stopped,", "2", "running", "fake"]
    assert f"${2 * hourly:.4f}" in line(lab)
    stop_all(lab.session, rest, why="a test")
    assert line(lab)[1:4] == ["3/4", "degraded,", "stopped"]


def test_a_queue_is_a_line_of_its_own_where_somebody_knows_it(lab, gang):
    document = list_machines(lab.session, queues={gang[0].cluster.id: "1 job runs, 2 wait"})
    assert listing_table(document, lab.clock(), me=None).splitlines()[-1] == "train: 1 job runs, 2 wait."
    assert document["clusters"][0]["queue"] == "1 job runs, 2 wait"


def test_machines_of_their_own_have_no_cluster_and_their_answer_has_none(lab):
    lab.up(name="fox")
    document = list_machines(lab.session)
    assert document["clusters"] == []
    assert [one["cluster"] for one in document["machines"]] == [None]


def test_show_has_sums_and_each_node_by_the_clusters_name_and_one_machine_by_a_nodes(lab, gang):
    whole = show_document(lab.session, "train", refresh=True)
    assert [one["name"] for one in whole["machines"]] == [row.name for row in gang]
    assert "history" not in whole["machines"][0]
    assert show_document(lab.session, "train-2", history=True)["history"]
    assert show_document(lab.session, None, history=True)["machines"][3]["history"]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_lines_of_a_node_come_whole_each_with_its_name_however_they_arrive(size):
    out, said = io.BytesIO(), b"one\ntwo\n\nlast, without an end"
    lines = NodeOutput(out, "train-1", Lock())
    for place in range(0, len(said), size):
        lines.write(said[place : place + size])
    lines.close()
    assert out.getvalue() == b"train-1: one\ntrain-1: two\ntrain-1: \ntrain-1: last, without an end\n"
