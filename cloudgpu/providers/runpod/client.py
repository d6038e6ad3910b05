"""One account at RunPod: a method for each call of the API, with answers as in RunPod's schema."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypedDict, cast

from cloudgpu.core.model.account import PrepaidCredit
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.values.money import Money
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.machine.container_start import TAGS_VARIABLE
from cloudgpu.providers.rest.client import CloudApi, RestClient
from cloudgpu.providers.rest.once import SendOnce
from cloudgpu.providers.runpod import errors
from cloudgpu.providers.runpod.options import CLOUD, PROVIDER, auth_headers, endpoint, runpod_options
from cloudgpu.providers.shared.account import CloudAccount

MAX_CATALOGUE_AGE = timedelta(minutes=1)
LISTED_WITHIN = timedelta(minutes=5)  # after a launch, until a listing shows its pod (unverified)
MAX_LOG_S, MAX_LOG_LINES = 2.0, 1000  # a log never ends: so many seconds and lines of it are read


class Gpu(TypedDict):
    """The GPUs of a pod."""

    id: str
    count: int


class Pod(TypedDict):
    """The fields of a pod that cloudgpu reads (schema Pod of openapi.json 2.0.0). `cost` is USD an hour.

    `cloud` is SECURE or COMMUNITY, `env` the container's environment, `ssh` its addresses by kind. A `locked` pod can
    be neither stopped nor deleted.
    """

    id: str
    name: str
    status: str
    env: Mapping[str, str]
    gpu: Gpu
    cloud: str
    dataCenterId: str | None
    ssh: Mapping[str, Any]
    cost: float
    locked: bool
    createdAt: str
    startedAt: str | None


class Runpod(CloudAccount):
    """One account. Creating it makes no network call."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.options = runpod_options(settings.account, settings.options)
        self.launch_records = SendOnce(settings.home, settings.clock)
        self.hourly_costs: dict[str, Decimal] = {}  # USD by pod, from the last answer; 0 if stopped
        self.launched_pods: dict[str, str] = {}  # ids of pods that this process launched, by token
        self.lock = threading.Lock()
        api = CloudApi(CLOUD, PROVIDER, endpoint(), auth_headers, errors.error_of_answer)
        self.rest = RestClient(api, self.timeouts, self.pause)
        self._catalogues: dict[tuple[str, int], tuple[datetime, Sequence[Mapping[str, Any]]]] = {}
        self._identity: AccountIdentity | None = None

    def identity(self) -> AccountIdentity:
        """Return the account that the key belongs to; one call, cached."""
        with self.lock:
            if self._identity is None:
                answer = self._get("/v2/account", "account.get")
                id_ = answer.get("id") if isinstance(answer, dict) else None
                if not isinstance(id_, str) or not id_.strip():
                    raise ProviderUnavailable(
                        "RunPod did not say to whom the key belongs.", field="provider", value=PROVIDER
                    )
                self._identity = AccountIdentity("runpod account", id_, f"RunPod account {id_}")
            return self._identity

    def catalogue(self, cloud: str, count: int) -> Sequence[Mapping[str, Any]]:
        """Return the GPU types, prices and stock in `cloud` (SECURE or COMMUNITY), for pods with `count` GPUs."""
        query = {"include": "AVAILABILITY", "product": "POD", "count": str(count), "cloud": cloud}
        return _list_in(self._get("/v2/catalog/gpus", "catalog.gpus", query=query), "gpus")

    def cached_catalogue(self, cloud: str, count: int) -> Sequence[Mapping[str, Any]]:
        """Return `catalogue`, at most a minute old, so that offers and their prices are from one answer."""
        cached = self._catalogues.get((cloud, count))
        if cached is None or not timedelta(0) <= self.clock() - cached[0] < MAX_CATALOGUE_AGE:
            cached = self._catalogues[cloud, count] = self.clock(), self.catalogue(cloud, count)
        return cached[1]

    def catalogue_time(self, cloud: str, count: int) -> datetime:
        """Return when the answer of `cached_catalogue` was requested, aware UTC."""
        return self._catalogues[cloud, count][0]

    def pods(self) -> Sequence[Pod]:
        """Return all pods of the account, also those that cloudgpu did not launch."""
        return [_pod(one, listed=True) for one in _list_in(self._get("/v2/pods", "pods.list"), "pods")]

    def pod(self, id_: str) -> Pod:
        """Return a pod. Raises InstanceNotFound."""
        return _pod(self._get(f"/v2/pods/{id_}", "pods.get", value=id_), id_)

    def create(self, body: Mapping[str, Any], value: str) -> Pod:
        """Create a pod; sent once. Raises as `errors.translate_error` and the client."""
        return _pod(self._call("POST", "/v2/pods", errors.CREATE, value=value, body=body))

    def request_action(self, id_: str, action: str) -> None:
        """Request the action `stop` or `start`; sent once. Raises InstanceNotFound, NoCapacity, InvalidRequest."""
        self._call("POST", f"/v2/pods/{id_}/action", f"pods.{action}", value=id_, body={"action": action})

    def delete(self, id_: str) -> None:
        """Request the deletion of a pod. Raises InstanceNotFound."""
        self._call("DELETE", f"/v2/pods/{id_}", "pods.delete", value=id_, idempotent=True)

    def log(self, id_: str) -> str:
        """Return the last lines of a container's log. Raises InstanceNotFound."""
        query = {"source": "container", "tail": str(MAX_LOG_LINES)}
        try:
            events = list(self.rest.lines(f"/v2/pods/{id_}/logs", action="pods.logs", query=query, seconds=MAX_LOG_S))
        except errors.ApiError as error:
            raise self._translate_error(error, "pods.logs", id_) from error
        return "\n".join(_event_lines(events))

    def credit(self) -> PrepaidCredit | None:
        """Return the remaining prepaid credit; at zero, RunPod deletes pods (docs, Pods, Pricing).

        None for an account that is invoiced: it has no prepaid credit. Raises ProviderUnavailable for an answer
        without a balance.
        """
        as_of, balance = self.clock(), self._get("/v2/billing/balance", "billing.balance")
        try:
            remaining, mode = Money.usd(str(Decimal(str(balance["balanceAmount"])))), balance["billingMode"]
        except (KeyError, TypeError, ArithmeticError, ValueError) as error:
            raise ProviderUnavailable(
                "RunPod's answer has no balance.", field="provider", value=PROVIDER, next=f"See {errors.BILLING_URL}"
            ) from error
        return PrepaidCredit(remaining, as_of, None, errors.BILLING_URL) if mode == "PREPAID" else None

    def _get(self, path: str, action: str, *, query: Mapping[str, str] | None = None, value: str | None = None) -> Any:
        return self._call("GET", path, action, query=query, value=value)

    def _call(self, method: str, path: str, action: str, *, value: str | None = None, **options: Any) -> Any:
        """Send a call and return its answer; `value` is what it is about, for errors."""
        try:
            return self.rest.call(method, path, action=action, **options).data
        except errors.ApiError as error:
            raise self._translate_error(error, action, value) from error

    def _translate_error(self, error: errors.ApiError, action: str, value: str | None) -> CloudgpuError:
        return errors.translate_error(error, action, value, self.rest.redact(error.detail))


def _list_in(answer: Any, name: str) -> Sequence[Any]:
    entries = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise ProviderUnavailable(f"RunPod answered without {name}.", field="provider", value=PROVIDER)
    return entries


def _pod(answer: Any, id_: str | None = None, *, listed: bool = False) -> Pod:
    """Return a valid pod. `listed`: it may not be cloudgpu's, and without our tags it only needs an id.

    Raises ProviderUnavailable for an incomplete pod, and for one with another id than `id_`.
    """
    if isinstance(answer, dict) and isinstance(answer.get("id"), str) and id_ in (None, answer["id"]):
        env, gpu = answer.get("env"), answer.get("gpu")
        pod = {**dict.fromkeys(Pod.__annotations__), **answer}
        pod |= {"name": str(answer.get("name") or ""), "env": env if isinstance(env, dict) else {}}
        is_foreign = listed and TAGS_VARIABLE not in pod["env"]
        if is_foreign or (isinstance(gpu, dict) and "id" in gpu and isinstance(gpu.get("count"), int)):
            return cast("Pod", pod)
    message = "RunPod answered with an incomplete pod, or another one than requested."
    raise ProviderUnavailable(message, field="provider", value=PROVIDER, next="Try again in a minute.")


def _event_lines(events: Sequence[str]) -> Iterator[str]:
    """Yield the lines in Server-Sent Events: `data: {"source", "line", "ts"}`."""
    for event in events:
        if not event.startswith("data:"):
            continue
        try:
            message = json.loads(event.removeprefix("data:"))
        except ValueError:  # cut off at the time limit
            continue
        if isinstance(message, dict) and isinstance(message.get("line"), str):
            yield message["line"]
