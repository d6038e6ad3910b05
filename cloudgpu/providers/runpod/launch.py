"""Launches pods. RunPod has no idempotency tokens, so the call is sent once; its outcome is found by the pod's name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.model.instances import TAG_ID, Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import CloudgpuError, InstanceNotFound, LaunchUncertain, ProviderUnavailable, RateLimited
from cloudgpu.providers.rest.client import NotSent
from cloudgpu.providers.rest.once import unknown_outcome_error, unknown_outcome_remedy
from cloudgpu.providers.runpod import machines
from cloudgpu.providers.runpod.client import LISTED_WITHIN, Pod, Runpod
from cloudgpu.providers.runpod.options import CLOUD
from cloudgpu.providers.runpod.request import launch_body, pod_name

THROTTLED_PAUSE_S = 15.0  # before a throttled call is sent again, without Retry-After
LISTING_PAUSES_S = (1.0, 2.0, 4.0, 8.0)  # pauses between listings after a launch without an answer


def launch(runpod: Runpod, attempt: Attempt, *, deadline: datetime) -> Instance:
    """Launch the pod of an attempt, or return the pod that the attempt has created already.

    Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest if none was created; LaunchUncertain or another
    ProviderUnavailable if that is unknown.
    """
    request_body = launch_body(attempt)  # raises for an invalid attempt before any call
    with runpod.launch_records.exclusive(attempt):
        pod = _find_created(runpod, attempt)
        if pod is None:
            if not runpod.launch_records.claim_send(attempt):
                raise unknown_outcome_error(CLOUD, attempt, LISTED_WITHIN)
            pod = _send(runpod, attempt, request_body, deadline)
        runpod.launched_pods[attempt.token] = pod["id"]
    return machines.instance(runpod, pod)


def _find_created(runpod: Runpod, attempt: Attempt) -> Pod | None:
    """Return the pod of an attempt, if there is one: by its id if this process launched it, else by its name."""
    pod_id = runpod.launched_pods.get(attempt.token)
    if pod_id is not None:
        try:
            return runpod.pod(pod_id)
        except InstanceNotFound:
            return None
    return _find_by_name(runpod, attempt)


def _find_by_name(runpod: Runpod, attempt: Attempt) -> Pod | None:
    """Return the pod with the attempt's name and its machine's tags: the oldest, because copies by users are newer."""
    name = pod_name(attempt.token)
    pods = [pod for pod in runpod.pods() if pod["name"] == name]
    own_pods = [pod for pod in pods if machines.tags(pod).get(TAG_ID) == attempt.machine]
    return min(own_pods or pods, key=lambda pod: pod["createdAt"] or "", default=None)


def _send(runpod: Runpod, attempt: Attempt, request_body: Mapping[str, Any], deadline: datetime) -> Pod:
    """Send the call of an attempt, find out whether it created a pod, and return that. Raises as `launch`."""
    while True:
        try:
            return runpod.create(request_body, attempt.offer.configuration.instance_type)
        except RateLimited as error:  # rejected before processing
            runpod.launch_records.record_refusal(attempt)
            _wait_and_claim(runpod, attempt, error, deadline)
        except NotSent:
            runpod.launch_records.record_refusal(attempt)
            raise
        except ProviderUnavailable as error:
            return _find_launched(runpod, attempt, error, deadline)
        except CloudgpuError:
            runpod.launch_records.record_refusal(attempt)
            raise


def _wait_and_claim(runpod: Runpod, attempt: Attempt, error: RateLimited, deadline: datetime) -> None:
    """Wait, and record that the call is sent again; raise the error if that is after the deadline."""
    seconds = error.retry_after or THROTTLED_PAUSE_S
    if runpod.clock() + timedelta(seconds=seconds) >= deadline:
        raise error
    runpod.notify(f"RunPod takes no more calls for now; trying again in {seconds:.0f} s")
    runpod.pause(seconds)
    if not runpod.launch_records.claim_send(attempt):
        raise unknown_outcome_error(CLOUD, attempt, LISTED_WITHIN)


def _find_launched(runpod: Runpod, attempt: Attempt, error: ProviderUnavailable, deadline: datetime) -> Pod:
    """Return the pod of a call without an answer, when a listing shows it. Raises LaunchUncertain."""
    for seconds in LISTING_PAUSES_S:
        runpod.pause(seconds)
        with suppress(CloudgpuError):
            pod = _find_by_name(runpod, attempt)
            if pod is not None:
                return pod
        if runpod.clock() >= deadline:
            break
    message = f"It is not known whether RunPod has made the pod {attempt.request.name}: {error.message}"
    remedy = f"{unknown_outcome_remedy(LISTED_WITHIN)} The call is not sent again."
    raise LaunchUncertain(message, field="token", next=remedy) from error
