"""A region of AWS that drops packets, hangs or is slow: how long it is waited for, and whose answers it keeps."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ConnectTimeoutError

from cloudgpu.core.model.instances import Instance
from cloudgpu.errors import AnswerTimeout
from cloudgpu.providers.aws.provider import AwsProvider
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.patience import DEFAULT_S, CallTimeouts
from tests.providers.aws.accounts import calls, machine

EAST = "us-east-1/i-0123456789abcdef0"
BOUND_S = 10.0  # against a test that hangs
SETTINGS = ProviderSettings("lab", {"regions": ["us-east-1", "us-west-2"]}, None, lambda: datetime.now(UTC))


class Monotonic:
    """Seconds that go on only where something waits."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def provider_of(home, **more):
    """Return a provider whose SDK is made, so that a test can speak for a region."""
    provider = AwsProvider(replace(SETTINGS, home=home, **more))
    provider._aws.ec2("us-east-1")
    return provider


def speak_for_east(provider, speak):
    """Let `speak()` be called whenever something is about to be sent to us-east-1."""

    def send(request, **_more):
        if b"/us-east-1/" in request.headers["Authorization"]:
            speak()

    provider._aws._session.events.register("before-send.*", send)
    provider._aws._clients.clear()  # a client has what was registered before it was made


@pytest.mark.parametrize("wait", [0.0, 1.0])
def test_a_read_of_a_region_that_drops_packets_ends_within_its_time(aws, tmp_path, monkeypatch, wait):
    clock = Monotonic()
    monkeypatch.setattr("botocore.endpoint.time", clock)
    monkeypatch.setattr("random.random", lambda: wait)  # of what the SDK waits, at most, between two sends
    provider = provider_of(tmp_path)
    provider._aws.timeouts = CallTimeouts(monotonic=clock)

    def drop():
        clock.sleep(provider._aws.timeouts.connect_s)
        raise ConnectTimeoutError(endpoint_url="x")

    speak_for_east(provider, drop)
    assert isinstance(provider.get_many([EAST])[EAST], AnswerTimeout)
    assert clock.now <= DEFAULT_S


def test_a_region_that_hangs_keeps_no_answer_of_another(aws, tmp_path):
    there, released = machine("us-west-2"), threading.Event()
    provider = provider_of(tmp_path, patience=0.2)
    speak_for_east(provider, lambda: released.wait(BOUND_S))
    found = provider.get_many([EAST, there])
    assert not released.is_set()
    released.set()
    assert (type(found[there]), type(found[EAST])) == (Instance, AnswerTimeout)


def test_a_change_that_takes_longer_than_a_read_may_is_sent_once_and_answered(aws, tmp_path):
    there = machine("us-west-2")
    provider = AwsProvider(replace(SETTINGS, home=tmp_path, patience=1.0))
    aws.faults.latency_s = 1.3
    with calls(aws) as sent:
        assert provider.stop_many([there]) == {}
    assert sent == [("StopInstances", "us-west-2")]
