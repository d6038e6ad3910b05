"""Bytes out, as the agent counts them: by the kernel's counters, over boots and its own restarts."""

from __future__ import annotations

import pytest

from cloudgpu.agent import agent, meters


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.setattr(meters, "NETWORK_DEVICES", tmp_path / "net")

    def set_card(name, sent, *, real=True, received=0):
        card = tmp_path / "net" / name
        (card / "statistics").mkdir(parents=True, exist_ok=True)
        (card / "statistics" / "rx_bytes").write_text(f"{received}\n")
        (card / "statistics" / "tx_bytes").write_text(f"{sent}\n")
        if real:
            (card / "device").mkdir(exist_ok=True)

    return set_card


def test_the_first_count_is_all_since_the_boot(net):
    net("eth0", 1000)
    assert meters.traffic_total({}, "b1", 50.5) == {"bytes": 1000, "raw": 1000, "boot": "b1", "since": 50}


def test_counts_go_on_over_restarts_and_boots(net):
    net("eth0", 1000)
    first = meters.traffic_total({}, "b1", 50)
    net("eth0", 1500)
    second = meters.traffic_total(first, "b1", 99)
    net("eth0", 200)  # the kernel counts from nothing after a boot
    third = meters.traffic_total(second, "b2", 99)
    assert [one["bytes"] for one in (first, second, third)] == [1000, 1500, 1700]
    assert third["since"] == 50


def test_loopback_and_bridges_to_containers_are_not_counted(net):
    net("eth0", 1000)
    net("lo", 7, real=False)
    net("docker0", 77, real=False)
    assert meters.traffic_total({}, "b1", 0)["bytes"] == 1000


def test_where_no_card_is_real_every_one_but_loopback_counts(net):
    net("lo", 7, real=False)
    net("eth0", 77, real=False)
    assert meters.traffic_total({}, "b1", 0)["bytes"] == 77


def test_a_card_that_goes_takes_nothing_back(net):
    net("eth0", 1000)
    first = meters.traffic_total({}, "b1", 0)
    net("eth0", 400)
    second = meters.traffic_total(first, "b1", 0)
    net("eth0", 500)
    assert (second["bytes"], meters.traffic_total(second, "b1", 0)["bytes"]) == (1000, 1100)


def test_the_heartbeat_and_the_status_have_the_count_and_another_machines_image_begins_anew(net, tmp_path):
    net("eth0", 1000)
    home = tmp_path / "agent"
    home.mkdir()
    (home / "agent.json").write_text('{"id": "cg-1"}')
    agent.Agent(home, 10).step(100.0, 10.0)
    net("eth0", 1300)
    agent.Agent(home, 20).step(110.0, 20.0)  # a new process goes on
    assert agent.status(home, 110.0)["sent"]["bytes"] == 1300
    (home / "agent.json").write_text('{"id": "cg-2"}')
    net("eth0", 5)
    agent.Agent(home, 20).step(120.0, 30.0)
    assert agent.status(home, 120.0)["sent"]["bytes"] == 5


def test_the_bytes_received_are_counted_apart_and_go_on_where_an_older_agent_counted_none(net, tmp_path):
    net("eth0", 1000, received=70)
    home = tmp_path / "agent"
    home.mkdir()
    (home / "agent.json").write_text('{"id": "cg-1"}')
    first = agent.Agent(home, 10)
    first.step(100.0, 10.0)
    del first.heartbeat["received"]  # as an older one leaves it
    net("eth0", 1300, received=90)
    first.step(110.0, 20.0)
    found = agent.status(home, 110.0)
    assert (found["sent"]["bytes"], found["received"]["bytes"]) == (1300, 90)
