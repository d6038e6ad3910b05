"""A launch at RunPod is sent once, whatever becomes of its answer: never two pods, never one that nobody finds."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.core.model.launch import BootPart, Setup
from cloudgpu.core.model.offers import Requirements, Trust
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest, LaunchUncertain, NoCapacity, ProviderUnavailable, QuotaExceeded, RateLimited
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.providers.runpod.accounts import account, an_attempt, impatient, launched

__all__ = ["runpod", "runpod_process"]


@pytest.fixture
def provider(runpod, tmp_path):
    return account(runpod, tmp_path / "lab")


def test_the_call_says_all_that_the_pod_is_at_once(runpod, provider):
    attempt = an_attempt(provider, runpod, setup=Setup(disk_gb=120))
    made = launched(provider, attempt)
    (call,) = runpod.called("pods.create")
    assert call.body["name"] == f"cg-{attempt.token}"
    assert json.loads(call.body["env"]["CLOUDGPU_TAGS"]) == dict(attempt.tags)
    assert call.body["env"]["PUBLIC_KEY"] == attempt.boot.client_public_keys[0]
    assert call.body["gpu"] == {"id": "NVIDIA H100 80GB HBM3", "count": 1}
    assert (call.body["cloud"], call.body["dataCenterIds"]) == ("SECURE", [made.zone])
    assert call.body["mounts"] == {"persistent": {"size": 120, "path": "/workspace"}}
    assert (call.body["ports"], call.body["disk"]) == (["22/tcp"], 40)
    assert "startSsh" not in call.body
    assert len(call.body["args"]) < 4000
    assert sum(map(len, call.body["env"].values())) < 40_000
    assert attempt.boot.host_private_key.splitlines()[2] not in json.dumps(call.body)


def test_a_container_part_of_a_template_is_its_image_and_image_wins_over_it(runpod, provider):
    part = BootPart("container", "nvcr.io/nvidia/pytorch:25.09-py3\n")
    launched(provider, an_attempt(provider, runpod, parts=[part]))
    own = Setup(image="ghcr.io/lab/own:1")
    launched(provider, an_attempt(provider, runpod, parts=[part], setup=own, key="own"))
    images = [call.body["image"] for call in runpod.called("pods.create")]
    assert images == ["nvcr.io/nvidia/pytorch:25.09-py3", "ghcr.io/lab/own:1"]


@pytest.mark.parametrize("fault", ["lost", "made"])
def test_a_lost_or_failed_answer_finds_the_pod_by_its_name(runpod, provider, fault):
    runpod.faults.lose_reply("pods.create") if fault == "lost" else runpod.failed_after()
    made = launched(provider, an_attempt(provider, runpod))
    assert runpod.pods() == [made.id]
    assert len(runpod.called("pods.create")) == 1


def test_a_pod_that_is_listed_late_is_uncertain_and_found_by_whoever_comes_later(runpod, provider):
    attempt = an_attempt(provider, runpod)
    runpod.model.listed_after_s = 200
    runpod.faults.lose_reply("pods.create")
    with pytest.raises(LaunchUncertain):
        launched(provider, attempt)
    for _ in range(3):
        with pytest.raises(LaunchUncertain):
            launched(provider, attempt, 600)
    runpod.advance(200)
    made = launched(provider, attempt, 600)
    assert runpod.pods() == [made.id]
    assert len(runpod.called("pods.create")) == 1


@pytest.mark.parametrize("status", [500, 503])
def test_a_failure_before_the_pod_was_made_is_uncertain_and_never_sent_again(runpod, provider, status):
    attempt = an_attempt(provider, runpod)
    runpod.faults.add("pods.create", error="down", status=status)
    for _ in range(2):
        with pytest.raises(LaunchUncertain):
            launched(provider, attempt)
    assert runpod.pods() == []
    assert len(runpod.called("pods.create")) == 1


def test_another_computer_finds_the_pod_and_sends_nothing(runpod, provider, tmp_path):
    attempt = an_attempt(provider, runpod)
    made = launched(provider, attempt)
    other = account(runpod, tmp_path / "other")
    assert launched(other, attempt).id == made.id
    runpod.advance(300)
    runpod.model.end(runpod.model.pods[made.id])
    with pytest.raises(LaunchUncertain):
        launched(account(runpod, tmp_path / "third"), attempt, 900)
    assert len(runpod.called("pods.create")) == 1


def test_too_many_calls_are_waited_for_and_sent_again_since_nothing_was_made(runpod, provider):
    runpod.faults.add("pods.create", error="rate", status=429, retry_after=12)
    before = runpod.clock.now()
    launched(provider, an_attempt(provider, runpod))
    assert runpod.clock.now() - before >= timedelta(seconds=12)
    assert len(runpod.pods()) == 1
    runpod.faults.add("pods.create", error="rate", status=429, retry_after=500)
    with pytest.raises(RateLimited):
        launched(provider, an_attempt(provider, runpod, key="two"))
    assert len(runpod.pods()) == 1


def test_a_call_that_was_surely_refused_may_be_sent_again(runpod, provider):
    attempt = an_attempt(provider, runpod)
    runpod.no_capacity()
    with pytest.raises(NoCapacity, match="no instances currently available"):
        launched(provider, attempt)
    assert launched(provider, attempt).state is State.PENDING


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (400, NoCapacity, "sentence"),
        (402, QuotaExceeded, "credit"),
        (403, NoCapacity, "403"),
        (404, NoCapacity, "404"),
        (408, LaunchUncertain, "408"),
        (409, InvalidRequest, "409"),
        (422, InvalidRequest, "422"),
    ],
)
def test_each_refusal_of_a_launch_has_its_own_reaction(runpod, provider, status, kind, said):
    runpod.faults.add("pods.create", error="no", status=status, message="a sentence of theirs")
    with pytest.raises(kind, match=said) as raised:
        launched(provider, an_attempt(provider, runpod))
    assert raised.value.next or kind is InvalidRequest
    assert runpod.pods() == []


def test_without_an_hour_of_credit_nothing_is_launched(runpod, provider):
    runpod.model.balance = Fraction("3.98")
    with pytest.raises(QuotaExceeded) as raised:
        launched(provider, an_attempt(provider, runpod))
    assert "billing" in raised.value.next


def test_where_nothing_listens_the_call_may_be_sent_later(runpod, provider, monkeypatch, tmp_path):
    attempt = an_attempt(provider, runpod)
    monkeypatch.setenv("CLOUDGPU_RUNPOD_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ProviderUnavailable):
        launched(impatient(runpod, tmp_path / "lab"), attempt)
    monkeypatch.setenv("CLOUDGPU_RUNPOD_ENDPOINT", runpod.url)
    assert launched(account(runpod, tmp_path / "lab"), attempt).state is State.PENDING


def test_a_pod_that_a_person_copied_is_not_taken_for_the_machine(runpod, provider, tmp_path):
    attempt = an_attempt(provider, runpod)
    made = launched(provider, attempt)
    with runpod.lock:
        body = {**runpod.pod(made.id).body, "env": {}}
        runpod.advance(5)
        copy = runpod.model.make(body).id
    assert launched(account(runpod, tmp_path / "other"), attempt).id == made.id
    listing = provider.list()
    assert [one.id for one in listing.instances] == [made.id]
    assert [one.scope for one in listing.unanswered] == [copy]
    with runpod.lock:
        runpod.pod(copy).body["name"] = "cg-train"  # a name that somebody may use
    assert provider.list().unanswered == ()


def test_computers_of_the_community_are_asked_for_only_where_they_are_accepted(runpod, provider):
    want = Requirements(gpu="rtx4090")
    assert {item.trust for item in provider.available(want).items} == {Trust.DATACENTER}
    assert len(runpod.calls) == 1
    both = provider.available(replace(want, trust=Trust.COMMUNITY)).items
    assert {item.trust for item in both} == {Trust.DATACENTER, Trust.COMMUNITY}
    prices = {item.trust: price.per_hour for item, price in zip(both, provider.prices(both), strict=True)}
    assert prices == {Trust.DATACENTER: Money.usd("0.69"), Trust.COMMUNITY: Money.usd("0.34")}
    theirs = next(item for item in both if item.trust is Trust.COMMUNITY)
    wanted = Requirements(instance_type=theirs.instance_type, zone=theirs.zone, trust=Trust.COMMUNITY)
    found = an_attempt(provider, runpod, want=wanted)
    made = launched(provider, found)
    assert (made.region, made.zone) == ("COMMUNITY", "COMMUNITY")
    assert "dataCenterIds" not in runpod.called("pods.create")[-1].body
    assert any("stranger" in one for one in provider.resolve(found.request, theirs).remarks)


def test_an_offer_that_is_gone_since_is_refused_before_the_launch(runpod, provider):
    attempt = an_attempt(provider, runpod)
    runpod.advance(61)
    runpod.model.types["NVIDIA H100 80GB HBM3"].stock = {}
    with pytest.raises(NoCapacity):
        provider.resolve(attempt.request, attempt.offer.configuration)


def test_a_launch_and_a_look_cost_so_many_calls(runpod, provider):
    attempt = an_attempt(provider, runpod)
    provider.prices(provider.available(Requirements(gpu="h100")).items)
    made = launched(provider, replace(attempt))
    provider.list()
    provider.get(made.id)
    provider.stop(made.id)
    provider.start(made.id)
    provider.terminate(made.id)
    assert [call.action for call in runpod.calls] == [
        "catalog.gpus",
        "pods.list",
        "pods.create",
        "pods.list",
        "pods.get",
        "pods.get",
        "pods.action",
        "pods.get",
        "pods.action",
        "pods.delete",
    ]
