"""Looks at pods, stops and starts, host keys, names of GPUs, and what is refused before RunPod hears of it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from fractions import Fraction

import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import Accelerator, Requirements, same_gpu
from cloudgpu.core.policies.guards import Agent
from cloudgpu.core.values.money import Money
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    EndRefused,
    InvalidRequest,
    NoCapacity,
    ProviderUnavailable,
    StopUnproved,
)
from cloudgpu.providers.runpod import gpus, machines, pod_key
from cloudgpu.providers.runpod.options import runpod_options
from tests.clouds.rest_faults import FOREVER
from tests.clouds.runpod import server
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.runpod.server import ACCOUNT, KEY
from tests.providers.machine.containers import PATH
from tests.providers.runpod.accounts import account, an_attempt, impatient, launched

__all__ = ["runpod", "runpod_process"]


@pytest.fixture
def provider(runpod, tmp_path):
    return account(runpod, tmp_path / "lab")


def test_the_port_of_ssh_is_another_one_after_each_start_and_none_while_it_is_stopped(runpod, provider):
    made = launched(provider, an_attempt(provider, runpod))
    assert made.address is None
    first = provider.get(made.id).address
    assert (first.host, first.user) == ("127.0.0.1", "root")
    provider.stop(made.id)
    assert provider.get(made.id).address is None
    provider.start(made.id)
    assert provider.get(made.id).address.port != first.port


@pytest.mark.parametrize("direct", [{}, {"host": None, "port": None, "username": "root"}, {"host": "127.0.0.1"}])
def test_an_address_that_is_not_complete_yet_is_none_and_hides_no_pod(runpod, provider, direct):
    made = launched(provider, an_attempt(provider, runpod))
    answer = provider._runpod.rest.get("/v2/pods", action="pods.list")
    answer["pods"][0]["ssh"]["direct"] = direct
    runpod.faults.add("pods.list", status=200, body=answer)
    (found,) = provider.list().instances
    assert (found.id, found.address) == (made.id, None)


def test_a_gpu_without_a_price_has_none_and_hides_no_other_price(runpod, provider):
    (item, *_) = provider.available(Requirements(gpu="h100")).items
    answer = provider._runpod.rest.get(
        "/v2/catalog/gpus",
        action="catalog.gpus",
        query={"include": "AVAILABILITY", "product": "POD", "count": "1", "cloud": "SECURE"},
    )
    for gpu in answer["gpus"]:
        if gpus.type_name(gpu["id"], 1) == item.instance_type:
            del gpu["price"]
    runpod.advance(120)
    runpod.faults.add("catalog.gpus", status=200, body=answer)
    other = next(one for one in provider.available(Requirements()).items if one.instance_type != item.instance_type)
    price, other_price = provider.prices([item, other])
    assert price is None
    assert other_price.per_hour > Money.usd(0)


def test_a_host_without_a_free_gpu_refuses_a_start_and_the_pod_stays_as_it_is(runpod, provider):
    made = launched(provider, an_attempt(provider, runpod))
    provider.stop(made.id)
    runpod.model.held.add(made.id)
    with pytest.raises(NoCapacity, match="its own host") as raised:
        provider.start(made.id)
    assert "cloudgpu down" in raised.value.next
    assert provider.get(made.id).state is State.STOPPED


def test_a_lost_answer_to_a_stop_is_stopped_all_the_same_and_asked_again_without_harm(runpod, provider):
    made = launched(provider, an_attempt(provider, runpod))
    runpod.faults.lose_reply("pods.action")
    with pytest.raises(ProviderUnavailable):
        provider.stop(made.id)
    provider.stop(made.id)
    assert len(runpod.called("pods.action")) == 1


def test_a_locked_pod_refuses_its_end_and_says_who_can_unlock_it(runpod, provider):
    made = launched(provider, an_attempt(provider, runpod))
    runpod.faults.add("pods.action", error="lock", status=409, message="pod is locked")
    with pytest.raises(StopUnproved, match="locked"):
        provider.stop(made.id)
    runpod.model.pods[made.id].locked = True
    runpod.faults.add("pods.action", error="lock", status=409, message="pod is locked")
    with pytest.raises(EndRefused, match="is locked") as raised:
        provider.stop(made.id)
    assert made.id in raised.value.next


def test_a_pod_whose_container_failed_is_unknown_and_billed(runpod, provider):
    made = launched(provider, an_attempt(provider, runpod))
    runpod.model.fail(runpod.pod(made.id))
    seen = provider.get(made.id)
    assert (seen.state, seen.billed, seen.reason) == (State.UNKNOWN, True, "died")
    with pytest.raises(StopUnproved):
        provider.stop(made.id)
    provider.terminate(made.id)
    assert runpod.pods() == []


def test_a_pod_in_a_state_that_is_not_known_here_is_billed_whatever_it_costs(runpod, provider):
    made = launched(provider, an_attempt(provider, runpod))
    pod = provider._runpod.pod(made.id)
    seen = machines.instance(provider._runpod, {**pod, "status": "MIGRATING", "cost": 0})
    assert (seen.state, seen.billed) == (State.UNKNOWN, True)


def test_only_the_line_of_the_start_script_is_a_host_key(runpod, provider):
    made = launched(provider, an_attempt(provider, runpod))
    provider.get(made.id)
    for line in ("ssh-ed25519 AAAA", "cloudgpu-host-key: ssh-rsa AAAA", "x cloudgpu-host-key: ssh-ed25519 AAAA"):
        runpod.say(made.id, line)
    assert provider.host_keys(made.id) == ()
    runpod.say(made.id, "cloudgpu-host-key: ssh-ed25519 AAAAC3Nz")
    assert provider.host_keys(made.id) == ("ssh-ed25519 AAAAC3Nz",)


def test_the_agent_only_tells_until_it_was_proved_that_the_pods_key_reads_no_other_pod(runpod, provider):
    attempt = an_attempt(provider, runpod)
    item = attempt.offer.configuration
    found = provider.resolve(attempt.request, item)
    assert (found.agent, found.guards, attempt.call["ends"]) == (Agent.TELLS, (), False)
    assert any("reads no other pod" in one for one in found.remarks)
    pod_key.write_record(provider._runpod, reads_no_other=True)
    found = provider.resolve(attempt.request, item)
    assert (found.agent, found.call["ends"]) == (Agent.ENDS, True)
    pod_key.write_record(provider._runpod, reads_no_other=False)
    assert provider.resolve(attempt.request, item).agent is Agent.TELLS


def answers(runpod, pod, **environ):
    """Run the program that a pod asks with its own key, as its container would; return what it prints."""
    env = {"RUNPOD_POD_ID": pod, "RUNPOD_API_KEY": runpod.pod(pod).key, "CLOUDGPU_RUNPOD_ENDPOINT": runpod.url}
    command = [sys.executable, "-c", pod_key.CHECK_PROGRAM]
    return subprocess.run(command, env={**env, **environ}, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("reads", "line", "agent"),
    [
        ("own", "cloudgpu-pod-key: own=200 list=403 others=0 account=403", Agent.ENDS),
        ("all", "cloudgpu-pod-key: own=200 list=200 others=1 account=403", Agent.TELLS),
    ],
)
def test_a_pod_tries_its_own_key_and_whoever_reads_its_host_key_takes_that_down(runpod, provider, reads, line, agent):
    runpod.pod_key_reads = reads
    first = an_attempt(provider, runpod)
    made, _ = launched(provider, first), launched(provider, an_attempt(provider, runpod, key="two"))
    provider.get(made.id)
    assert "CLOUDGPU_KEY_CHECK" in runpod.pod(made.id).body["env"]
    assert answers(runpod, made.id) == line
    runpod.say(made.id, line)
    provider.host_keys(made.id)
    later = an_attempt(provider, runpod, key="three")
    assert provider.resolve(later.request, later.offer.configuration).agent is agent
    launched(provider, later)
    assert ("CLOUDGPU_KEY_CHECK" in runpod.called("pods.create")[-1].body["env"]) is (agent is Agent.TELLS)


@pytest.mark.parametrize(
    "line",
    [
        "cloudgpu-pod-key: own=403 list=403 others=0 account=403",
        "cloudgpu-pod-key: own=200 list=200 others=0 account=403",
        "cloudgpu-pod-key: own=200 list=403 others=0 account=200",
        "cloudgpu-pod-key: own=0 list=0 others=0 account=0",
        "x cloudgpu-pod-key: own=200 list=403 others=0 account=403",
    ],
)
def test_nothing_less_than_the_whole_proof_makes_the_key_a_layer(runpod, provider, line):
    made = launched(provider, an_attempt(provider, runpod))
    provider.get(made.id)
    runpod.say(made.id, line)
    provider.host_keys(made.id)
    assert not pod_key.reads_no_other_pod(provider._runpod)


def test_the_command_of_the_leases_end_stops_its_own_pod(runpod, provider):
    made = launched(provider, an_attempt(provider, runpod))
    provider.get(made.id)
    env = {"RUNPOD_POD_ID": made.id, "RUNPOD_API_KEY": runpod.pod(made.id).key}
    env |= {"CLOUDGPU_RUNPOD_ENDPOINT": runpod.url, "PATH": PATH}
    subprocess.run(["/bin/sh", "-c", pod_key.STOP_COMMAND, "end", "lease"], env=env, check=True, timeout=30)
    assert provider.get(made.id).state is State.STOPPED
    for text in (pod_key.CHECK_PROGRAM, pod_key.STOP_COMMAND.split("\n", 1)[1].removesuffix("\nEND")):
        ast.parse(text, feature_version=(3, 8))


@pytest.mark.parametrize(
    ("gpu", "memory", "type_", "name"),
    [
        ("NVIDIA H100 80GB HBM3", 80, "2x-h100-80gb-hbm3", "H100"),
        ("NVIDIA H100 PCIe", 80, "2x-h100-pcie", "H100-PCIe"),
        ("NVIDIA H100 NVL", 94, "2x-h100-nvl", "H100-NVL"),
        ("NVIDIA A100 80GB PCIe", 80, "2x-a100-80gb-pcie", "A100-80GB-PCIe"),
        ("NVIDIA A100-SXM4-80GB", 80, "2x-a100-sxm4-80gb", "A100-80GB"),
        ("NVIDIA GeForce RTX 4090", 24, "2x-rtx-4090", "RTX4090"),
        ("NVIDIA GeForce RTX 3090 Ti", 24, "2x-rtx-3090-ti", "RTX3090Ti"),
        ("NVIDIA RTX 6000 Ada Generation", 48, "2x-rtx-6000-ada", "RTX6000Ada"),
        ("NVIDIA RTX A6000", 48, "2x-rtx-a6000", "A6000"),
        ("Tesla V100-SXM2-16GB", 16, "2x-tesla-v100-sxm2-16gb", "V100-16GB"),
        ("NVIDIA L40S", 48, "2x-l40s", "L40S"),
        ("NVIDIA B200", 180, "2x-b200", "B200"),
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            96,
            "2x-rtx-pro-6000-blackwell-server-edition",
            "RTXPRO6000",
        ),
    ],
)
def test_runpods_names_of_gpus_are_told_as_ours(gpu, memory, type_, name):
    found = gpus.accelerator(gpu, memory, 2)
    assert found == Accelerator(name, 2, memory)
    assert gpus.type_name(gpu, 2) == type_
    assert gpus.gpu_count_of(type_) == 2
    assert same_gpu(found.name, name)


def test_a_slice_of_a_gpu_is_a_share():
    found = gpus.accelerator("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", 24, 1)
    assert (found.name, found.share) == ("RTXPRO6000", 0.25)


def test_a_gpu_of_another_maker_is_not_offered(runpod, provider):
    assert provider.available(Requirements(gpu="mi300x")).items == ()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"data_centers": "US-KS-2"}, "has to be a list"),
        ({"data_centers": ["us-east-1"]}, "not a valid data centre"),
        ({"data_centers": [7]}, "not a valid data centre"),
        ({"container_gb": 0}, "not a size"),
        ({"container_gb": True}, "not a size"),
        ({"image": "pytorch"}, "not a valid container image"),
        ({"regions": ["US-KS-2"]}, "is not an option"),
        ({"api_key": "rpa_secret"}, "is not an option"),
    ],
)
def test_a_table_with_a_fault_is_refused_with_its_key(table, said):
    with pytest.raises(InvalidRequest, match=said) as raised:
        runpod_options("lab", table)
    assert raised.value.field.startswith("config.toml: accounts.lab.")
    assert raised.value.next
    assert "rpa_secret" not in str(raised.value.as_dict())


@pytest.mark.parametrize(
    ("setup", "field"),
    [
        (Setup(image="pytorch"), "--image"),
        (Setup(image="ami-0123456789"), "--image"),
        (Setup(volume=Volume("data", 100)), "--volume"),
        (Setup(disk_gb=9), "--disk"),
        (Setup(disk_gb=5000), "--disk"),
        (Setup(network=Network(subnet="subnet-1")), "--subnet"),
        (Setup(network=Network(security_group="sg-1")), "--security-group"),
        (Setup(network=Network(jump="me@host:22")), "--jump"),
        (Setup(network=Network(public_ip=False)), "--no-public-ip"),
    ],
)
def test_what_a_pod_cannot_have_is_refused_before_anything_is_made(runpod, provider, setup, field):
    with pytest.raises(InvalidRequest) as raised:
        an_attempt(provider, runpod, setup=setup)
    assert (raised.value.field, bool(raised.value.next)) == (field, True)
    assert runpod.pods() == []


def test_the_key_is_found_in_the_environment_or_where_runpodctl_keeps_it(runpod, provider, monkeypatch, tmp_path):
    assert provider.login().what == "the API key of RUNPOD_API_KEY"
    assert provider.identity().id == ACCOUNT
    file = tmp_path / "nobody" / ".runpod" / "config.toml"
    file.parent.mkdir(parents=True)
    monkeypatch.delenv("RUNPOD_API_KEY")
    for text in (f"apikey = '{KEY}'\n", f"[default]\napi_key = '{KEY}'\n"):
        file.write_text(text)
        with pytest.raises(AuthFailed):  # a server of somebody else's gets no key that was not named for it
            provider.login()
        with monkeypatch.context() as at_runpod:
            at_runpod.delenv("CLOUDGPU_RUNPOD_ENDPOINT")
            assert provider.login().what == f"the API key of {file}"


@pytest.mark.parametrize("text", ["", "apikey = ", "apikey = 3", "[default]\napi_key = ''\n"])
def test_a_file_without_a_key_is_no_login(runpod, provider, monkeypatch, tmp_path, text):
    file = tmp_path / "nobody" / ".runpod" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    monkeypatch.delenv("RUNPOD_API_KEY")
    monkeypatch.delenv("CLOUDGPU_RUNPOD_ENDPOINT")
    with pytest.raises(AuthFailed) as raised:
        provider.login()
    assert "runpodctl config" in raised.value.next


def test_a_wrong_key_is_refused_by_name_and_never_shown(runpod, monkeypatch, tmp_path):
    monkeypatch.setenv("RUNPOD_API_KEY", "rpa_some_wrong_key_0123")
    with pytest.raises(AuthFailed, match="does not accept the key") as raised:
        account(runpod, tmp_path / "x").list()
    assert "rpa_some" not in str(raised.value.as_dict())


@pytest.mark.parametrize("status", [401, 402, 403, 409, 418, 422, 500, 503])
def test_no_refusal_of_a_look_is_taken_for_nothing_there(runpod, tmp_path, status):
    provider = impatient(runpod, tmp_path / "lab")
    made = launched(provider, an_attempt(provider, runpod))
    runpod.faults.add("pods.get", error="no", status=status, times=FOREVER)
    with pytest.raises(CloudgpuError) as raised:
        provider.get(made.id)
    assert re.search(r"RunPod", raised.value.message)
    assert raised.value.kind != "not_found"


@pytest.mark.parametrize("status", [401, 403, 409, 418, 422, 500, 503])
def test_no_refusal_of_a_listing_is_an_empty_account(runpod, tmp_path, status):
    provider = impatient(runpod, tmp_path / "lab")
    launched(provider, an_attempt(provider, runpod))
    runpod.faults.add("pods.list", error="no", status=status, times=FOREVER)
    with pytest.raises(CloudgpuError):
        provider.list()


def test_a_listing_that_comes_too_often_is_sent_again(runpod, provider):
    made = launched(provider, an_attempt(provider, runpod))
    runpod.faults.add("pods.list", error="rate", status=429, retry_after=3)
    assert [one.id for one in provider.list().instances] == [made.id]


def test_credit_is_read_to_the_cent_and_an_account_that_is_invoiced_has_none(runpod, provider):
    runpod.model.balance = Fraction("42.18")
    assert provider.credit().remaining == Money.usd("42.18")
    runpod.model.balance = Fraction("-0.01")
    assert provider.credit().remaining == Money.usd("-0.01")
    runpod.model.mode = "POSTPAID"
    assert provider.credit() is None
    runpod.faults.deny("billing.balance", times=1)
    with pytest.raises(AuthFailed, match=r"billing\.balance"):
        provider.credit()


@pytest.mark.parametrize(
    "change", [{"env": None}, {"name": None}, {"gpu": None, "cpu": {"id": "cpu5c"}}, {"cost": None}]
)
def test_a_pod_of_somebody_else_keeps_nobody_from_the_list_of_ours(runpod, provider, monkeypatch, change):
    made = launched(provider, an_attempt(provider, runpod))
    shown = server.shown
    monkeypatch.setattr(server, "shown", lambda pod: {**shown(pod), **({} if pod.id == made.id else change)})
    with runpod.lock:
        runpod.model.make({**runpod.pod(made.id).body, "name": "theirs", "env": {}})
    assert [one.id for one in provider.list().instances] == [made.id]


@pytest.mark.parametrize("said", [None, [], {}, {"id": "another1234"}])
def test_a_pod_that_is_not_whole_is_no_answer_and_its_launch_is_looked_for(runpod, provider, monkeypatch, said):
    attempt, shown = an_attempt(provider, runpod), server.shown
    monkeypatch.setattr(server, "shown", lambda _: said)
    with pytest.raises(ProviderUnavailable):
        launched(provider, attempt)
    (pod,) = runpod.pods()
    with pytest.raises(ProviderUnavailable):
        provider.stop(pod)
    monkeypatch.setattr(server, "shown", shown)
    assert launched(provider, attempt, 600).id == pod
    assert len(runpod.called("pods.create")) == 1
