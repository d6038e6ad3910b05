"""One account at RunPod: its calls by name, with the answers as RunPod's schema has them."""

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
from cloudgpu.providers.machine.container_start import TAGS
from cloudgpu.providers.rest.client import CloudApi, RestClient
from cloudgpu.providers.rest.once import SendOnce
from cloudgpu.providers.runpod import errors
from cloudgpu.providers.runpod.options import KIND, endpoint, login, runpod_options
from cloudgpu.providers.shared.account import CloudAccount

STOCK_AGE = timedelta(minutes=1)
LOG_S, LOG_LINES = 2.0, 1000  # a log never ends: it is read for so long


class Gpu(TypedDict):
    """Which GPUs a pod has."""

    id: str
    count: int


class Pod(TypedDict):
    """What cloudgpu reads of a pod (schema Pod of openapi.json 2.0.0)."""

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
    """One account. Makes no network call until it is asked."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.options = runpod_options(settings.account, settings.options)
        self.once = SendOnce(settings.home, settings.clock)
        self.paid: dict[str, Decimal] = {}  # what each pod costs an hour by the last answer; 0 for a stopped one
        self.made: dict[str, str] = {}  # the pods that this process has launched, by token
        self.lock = threading.Lock()
        self.sending: dict[str, threading.Lock] = {}  # by token
        self._rest: RestClient | None = None
        self._stock: dict[tuple[str, int], tuple[datetime, Sequence[Mapping[str, Any]]]] = {}
        self._identity: AccountIdentity | None = None

    @property
    def rest(self) -> RestClient:
        """What sends the calls."""
        if self._rest is None:
            api = CloudApi("RunPod", KIND, endpoint(), login, errors.refused)
            self._rest = RestClient(api, self.patience, self.pause)
        return self._rest

    def identity(self) -> AccountIdentity:
        """Return the account that the key belongs to, asked once."""
        with self.lock:
            if self._identity is None:
                answer = self._get("/v2/account", "account.get")
                id_ = answer.get("id") if isinstance(answer, dict) else None
                if not isinstance(id_, str) or not id_.strip():
                    raise ProviderUnavailable("RunPod did not say whose the key is.", field="provider", value=KIND)
                self._identity = AccountIdentity("runpod account", id_, f"RunPod account {id_}")
            return self._identity

    def catalogue(self, cloud: str, count: int) -> Sequence[Mapping[str, Any]]:
        """Return the GPU types with prices and stock, for pods with so many GPUs of one of its clouds."""
        query = {"include": "AVAILABILITY", "product": "POD", "count": str(count), "cloud": cloud}
        return _items(self._get("/v2/catalog/gpus", "catalog.gpus", query=query), "gpus")

    def stock(self, cloud: str, count: int) -> Sequence[Mapping[str, Any]]:
        """Return the catalogue as `catalogue` does, at most a minute old: offers and their prices are one answer."""
        found = self._stock.get((cloud, count))
        if found is None or not timedelta(0) <= self.clock() - found[0] < STOCK_AGE:
            found = self._stock[cloud, count] = self.clock(), self.catalogue(cloud, count)
        return found[1]

    def stocked_at(self, cloud: str, count: int) -> datetime:
        """Return when the catalogue that `stock` returns was asked for, aware UTC."""
        return self._stock[cloud, count][0]

    def pods(self) -> Sequence[Pod]:
        """Return every pod of the account, whoever made it."""
        return [_pod(one, listed=True) for one in _items(self._get("/v2/pods", "pods.list"), "pods")]

    def pod(self, id_: str) -> Pod:
        """Return a pod. Raises InstanceNotFound."""
        return _pod(self._get(f"/v2/pods/{id_}", "pods.get", value=id_), id_)

    def create(self, body: Mapping[str, Any], value: str) -> Pod:
        """Ask for a pod, once. Raises what `errors.meaning` and the client say."""
        return _pod(self._call("POST", "/v2/pods", errors.CREATE, value=value, body=body))

    def act(self, id_: str, action: str) -> None:
        """Ask for `stop` or `start`, once. Raises InstanceNotFound, NoCapacity, InvalidRequest."""
        self._call("POST", f"/v2/pods/{id_}/action", f"pods.{action}", value=id_, body={"action": action})

    def delete(self, id_: str) -> None:
        """Ask to end a pod. Raises InstanceNotFound."""
        self._call("DELETE", f"/v2/pods/{id_}", "pods.delete", value=id_, again=True)

    def log(self, id_: str) -> str:
        """Return the last lines that a pod's container has written. Raises InstanceNotFound."""
        query = {"source": "container", "tail": str(LOG_LINES)}
        try:
            events = list(self.rest.lines(f"/v2/pods/{id_}/logs", action="pods.logs", query=query, seconds=LOG_S))
        except errors.Refused as error:
            raise self._meaning(error, "pods.logs", id_) from error
        return "\n".join(_event_lines(events))

    def credit(self) -> PrepaidCredit | None:
        """Return what is left of what was paid in; at zero, RunPod deletes pods (docs, Pods, Pricing).

        None for an account that is invoiced: it has no credit that could end. Raises ProviderUnavailable for an answer
        without a balance.
        """
        as_of, balance = self.clock(), self._get("/v2/billing/balance", "billing.balance")
        try:
            left, mode = Money.usd(str(Decimal(str(balance["balanceAmount"])))), balance["billingMode"]
        except (KeyError, TypeError, ArithmeticError, ValueError) as error:
            message = "RunPod's answer has no balance."
            raise ProviderUnavailable(message, field="provider", value=KIND, next=f"See {errors.BILLING}") from error
        return PrepaidCredit(left, as_of, None, errors.BILLING) if mode == "PREPAID" else None

    def _get(self, path: str, action: str, *, query: Mapping[str, str] | None = None, value: str | None = None) -> Any:
        return self._call("GET", path, action, query=query, value=value)

    def _call(self, method: str, path: str, action: str, *, value: str | None = None, **more: Any) -> Any:
        try:
            return self.rest.call(method, path, action=action, **more).data
        except errors.Refused as error:
            raise self._meaning(error, action, value) from error

    def _meaning(self, error: errors.Refused, action: str, value: str | None) -> CloudgpuError:
        return errors.meaning(error, action, value, self.rest.redacted(error.detail))


def _items(answer: Any, name: str) -> Sequence[Any]:
    rows = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise ProviderUnavailable(f"RunPod answered without {name}.", field="provider", value=KIND)
    return rows


def _pod(answer: Any, id_: str | None = None, *, listed: bool = False) -> Pod:
    """Return a pod as RunPod tells of it; one in a listing may be somebody else's: without our tags, it needs an id.

    Raises ProviderUnavailable for one that is not whole, and for another one than was asked for.
    """
    if isinstance(answer, dict) and isinstance(answer.get("id"), str) and id_ in (None, answer["id"]):
        env, gpu = answer.get("env"), answer.get("gpu")
        made = {**dict.fromkeys(Pod.__annotations__), **answer}
        made |= {"name": str(answer.get("name") or ""), "env": env if isinstance(env, dict) else {}}
        foreign = listed and TAGS not in made["env"]
        if foreign or (isinstance(gpu, dict) and "id" in gpu and isinstance(gpu.get("count"), int)):
            return cast("Pod", made)
    message = "RunPod answered with a pod that is not whole, or another one than was asked for."
    raise ProviderUnavailable(message, field="provider", value=KIND, next="Try again in a minute.")


def _event_lines(events: Sequence[str]) -> Iterator[str]:
    """Yield the lines in Server-Sent Events: `data: {"source", "line", "ts"}`."""
    for event in events:
        if not event.startswith("data:"):
            continue
        try:
            found = json.loads(event.removeprefix("data:"))
        except ValueError:  # cut off where the time was over
            continue
        if isinstance(found, dict) and isinstance(found.get("line"), str):
            yield found["line"]
