"""Launches: one call that is sent once, for RunPod knows no tokens; what became of it is found by the pod's name."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from cloudgpu.core.model.instances import TAG_ID, Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import CloudgpuError, InstanceNotFound, LaunchUncertain, ProviderUnavailable, RateLimited
from cloudgpu.providers.rest.client import NotSent
from cloudgpu.providers.rest.once import not_known_yet
from cloudgpu.providers.runpod import machines
from cloudgpu.providers.runpod.client import Pod, Runpod
from cloudgpu.providers.runpod.request import body, pod_name

PAUSE_S = 15.0  # before a call that was turned away is sent again, where RunPod does not say
LOOKS_S = (1.0, 2.0, 4.0, 8.0)  # between looks for a pod whose launch was not answered


def launch(runpod: Runpod, attempt: Attempt, *, deadline: datetime) -> Instance:
    """Launch the pod of an attempt, or return the one that its token has made already.

    Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest when it was surely not made; LaunchUncertain or
    another ProviderUnavailable when that is not known.
    """
    wanted = body(attempt)  # a fault in it is said before anything is asked
    with runpod.lock:
        alone = runpod.sending.setdefault(attempt.token, threading.Lock())
    with alone:
        found = _made_before(runpod, attempt)
        if found is None:
            if not runpod.once.may_send(attempt):
                raise not_known_yet("RunPod", attempt)
            found = _Sender(runpod, attempt, deadline).send(wanted)
        runpod.made[attempt.token] = found["id"]
    return machines.instance(runpod, found)


def _made_before(runpod: Runpod, attempt: Attempt) -> Pod | None:
    """Return the pod of an attempt, where there is one: by its id where this process has made it, else by its name."""
    known = runpod.made.get(attempt.token)
    if known is not None:
        try:
            return runpod.pod(known)
        except InstanceNotFound:
            return None
    return _named(runpod, attempt)


def _named(runpod: Runpod, attempt: Attempt) -> Pod | None:
    """Return the pod that bears the attempt's name and its machine's tags. A copy that a person made is a later one."""
    name = pod_name(attempt.token)
    found = [pod for pod in runpod.pods() if pod["name"] == name]
    ours = [pod for pod in found if machines.tags(pod).get(TAG_ID) == attempt.machine]
    return min(ours or found, key=lambda pod: pod["createdAt"] or "", default=None)


class _Sender:
    """Sends one call, which the marks allow, and knows whether it may have made a pod."""

    def __init__(self, runpod: Runpod, attempt: Attempt, deadline: datetime) -> None:
        self._runpod, self._attempt, self._deadline = runpod, attempt, deadline
        self._value = attempt.offer.available.instance_type

    def send(self, wanted: object) -> Pod:
        """Return the pod. Raises what `launch` does."""
        while True:
            try:
                return self._runpod.create(wanted, self._value)  # type: ignore[arg-type]
            except RateLimited as error:  # it was turned away before anything was done with it
                self._runpod.once.refused(self._attempt)
                self._wait(error)
            except NotSent:
                self._runpod.once.refused(self._attempt)
                raise
            except ProviderUnavailable as error:
                return self._find_launched(error)
            except CloudgpuError:
                self._runpod.once.refused(self._attempt)
                raise

    def _wait(self, error: RateLimited) -> None:
        """Wait as told, and mark the call as sent again; raise the error where that would be after the deadline."""
        seconds = error.retry_after or PAUSE_S
        if self._runpod.clock() + timedelta(seconds=seconds) >= self._deadline:
            raise error
        self._runpod.notify(f"RunPod takes no more calls for now; trying again in {seconds:.0f} s")
        self._runpod.pause(seconds)
        if not self._runpod.once.may_send(self._attempt):
            raise not_known_yet("RunPod", self._attempt)

    def _find_launched(self, error: ProviderUnavailable) -> Pod:
        """Return the pod of a call that was not answered, once a listing shows it; else its launch is uncertain."""
        for seconds in LOOKS_S:
            self._runpod.pause(seconds)
            try:
                found = _named(self._runpod, self._attempt)
            except CloudgpuError:
                found = None
            if found is not None:
                return found
            if self._runpod.clock() >= self._deadline:
                break
        message = f"It is not known whether RunPod has made the pod {self._attempt.request.name}: {error.message}"
        remedy = "The next cloudgpu up or cloudgpu reap finds out; the call is not sent again."
        raise LaunchUncertain(message, field="token", next=remedy) from error
