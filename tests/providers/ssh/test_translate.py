"""From what a host answers to offers, prices, machines and faults: by the program's answers, without SSH."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.access.ssh.connection import Completed
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.offers import Requirements
from cloudgpu.errors import NoCapacity, NotReachableHere, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.ssh import client, translate
from cloudgpu.providers.ssh.options import ssh_hosts
from cloudgpu.providers.ssh.provider import make

A100 = "NVIDIA A100-SXM4-80GB"
EIGHT = [[A100, "81920", f"GPU-{number}"] for number in range(8)]
FREE = {"cpus": 64, "memory_gib": 500.0, "gpus": EIGHT, "holder": None, "used": []}
BUSY = [{"uuid": "GPU-3", "says": "GPU 3 (97% busy): eve", "taken": True}]
ANYTHING, TWO = Requirements(), Requirements(gpu="a100", gpu_count=2)
AT = datetime(2026, 11, 20, tzinfo=UTC)
RECORD = {
    "id": f"bigbox.{'0' * 16}", "wanted": "running", "alive": True, "ended": None, "launched_at": 7.0, "boot_at": 7.0,
    "tags": {}, "gpus": [],
}  # fmt: skip


def host_of(name="bigbox", **settings):
    (found,) = ssh_hosts("lab", {"hosts": [{"name": name, "host": "127.0.0.1", **settings}]})
    return found


def offer(want=ANYTHING, host=None, **facts):
    return translate.available("lab", host or host_of(), {**FREE, **facts}, want)


def cost(host, item):
    return translate.price(host, item.accelerators, AT).per_hour.text(4)


def test_a_host_whose_gpus_others_use_is_tried_after_those_that_nobody_uses():
    assert (offer().gpus_now, offer().after) == (("nobody uses them",), ())
    taken = offer(used=BUSY)
    assert taken.gpus_now == ("GPU 3 (97% busy): eve",)
    assert taken.after == ("others use 1 of its 8 GPUs (host bigbox): hosts that nobody uses are tried before it",)
    assert offer(Requirements(gpu="a100", gpu_count=7), used=BUSY).after == ()
    (eight,) = offer(Requirements(gpu="a100", gpu_count=8), used=BUSY).after
    assert "it refuses while fewer than 8 are free" in eight
    assert offer(used=[{**BUSY[0], "taken": False}]).after == ()  # by the machine itself
    assert offer(used=None).gpus_now == ("not known: nvidia-smi has no answer there",)
    assert offer(holder="one (running)").after == ("bigbox is in use by one (running): it has one machine at a time",)


def test_a_part_of_a_host_is_offered_and_costs_its_part():
    host = host_of(watts=4000, usd_per_kwh=0.2)
    part = offer(TWO, host)
    assert [(gpu.name, gpu.count, gpu.out_of) for gpu in part.accelerators] == [(A100, 2, 8)]
    assert [(gpu.count, gpu.out_of) for gpu in offer(Requirements(gpu="a100")).accelerators] == [(1, 8)]
    assert [(gpu.count, gpu.out_of) for gpu in offer().accelerators] == [(8, None)]
    assert (cost(host, offer(host=host)), cost(host, part)) == ("$0.8000", "$0.2000")
    assert cost(host_of(), part) == "$0.0990"  # 2 x 400 W and a quarter of 100 W


def test_the_gpus_of_the_settings_win():
    host = host_of(gpu="mine", gpu_count=8, gpu_memory_gib=24)
    (gpu,) = offer(host=host).accelerators
    assert (gpu.name, gpu.count, gpu.memory_gib) == ("mine", 8, 24.0)
    (some,) = offer(Requirements(gpu="mine", gpu_count=3), host).accelerators
    assert (some.name, some.count, some.out_of) == ("mine", 3, 8)
    assert offer(host=host_of(gpu="wonder9000", gpu_count=8)).after == (
        "what the GPUs of bigbox draw is not known: other hosts are tried before it",
    )


def test_a_computer_its_users_and_their_homes_are_told_apart():
    here = {"computer": "1" * 32, "name": "big", "uid": 7, "home": "/home/ada"}
    found = {
        translate.identity(host_of(), "ada", new_host_key().public_line, {**here, **other}).id
        for other in ({}, {"uid": 8}, {"home": "/home/eve"}, {"computer": "2" * 32}, {"computer": ""})
    }
    assert len(found) == 5
    key = new_host_key().public_line
    one, two = ({**here, "computer": "", "name": name} for name in ("big", "small"))
    assert translate.identity(host_of(), "ada", key, one).id != translate.identity(host_of(), "ada", key, two).id


def test_a_script_that_runs_is_no_fault_and_one_that_failed_is():
    def reason(**facts):
        seen = translate.instance("lab", host_of(), client.address(host_of()), {**RECORD, **facts})
        assert seen.state is State.RUNNING
        return seen.reason

    assert [reason(), reason(**{"on_start.status": "running"}), reason(**{"on_start.status": "0"})] == [None] * 3
    assert reason(**{"on_start.status": "3"}).startswith("on_start failed with status 3")


@pytest.mark.parametrize(
    ("asked", "whose", "remedy"),
    [
        ({"cloudgpu-ledger": "l", "cloudgpu-owner": "eve"}, "in use by one (", "end it first: cloudgpu down one"),
        ({"cloudgpu-ledger": "m", "cloudgpu-owner": "ada"}, "in use by eve's one (", "Ask eve to end it"),
        ({"cloudgpu-ledger": "m", "cloudgpu-owner": "eve"}, "in use by one (", "End it from the home that launched it"),
    ],
)
def test_whose_machine_keeps_a_host_busy_is_said_with_who_can_end_it(asked, whose, remedy):
    there = {"name": "one", "wanted": "running", "at": 7.0, "tags": {"cloudgpu-ledger": "l", "cloudgpu-owner": "eve"}}
    answer = json.dumps({"fault": "busy", "said": json.dumps(there)})
    done = Completed(0, f"\n{client.ANSWER_PREFIX}{answer}\n".encode(), b"")
    with pytest.raises(NoCapacity) as refused:
        client._parse_answer(host_of(), done, asked)
    assert whose in refused.value.message
    assert remedy in refused.value.next


# -- which host a machine is on


@pytest.fixture
def account(tmp_path):
    """Two hosts that are off."""
    hosts = [
        {"name": name, "host": "127.0.0.1", "port": 1, "host_key": new_host_key().public_line, "user": "ada"}
        for name in ("bigbox", "other")
    ]
    return make(ProviderSettings("lab", {"hosts": hosts}, tmp_path, lambda: AT))


def heard(account, name, **facts):
    here = {"computer": name, "name": name, "uid": 7, "home": "/home/ada"}
    account._record_answer(account._hosts[name], {"here": {**here, **facts}})


def test_a_host_that_is_not_configured_may_be_a_silent_one_and_is_none_once_all_have_answered(account):
    told = []
    for name in ("", "bigbox", "other"):
        if name:
            heard(account, name)
        with pytest.raises(ProviderUnavailable, match="not in the settings") as said:
            account.get(f"gone.{'0' * 16}")
        told.append(type(said.value))
    assert told == [ProviderUnavailable, ProviderUnavailable, NotReachableHere]


def test_another_computer_than_a_moment_ago_says_nothing_of_the_same_machines(account):
    heard(account, "bigbox")
    heard(account, "bigbox")
    with pytest.raises(ProviderUnavailable, match="than a moment ago"):
        heard(account, "bigbox", computer="another")
