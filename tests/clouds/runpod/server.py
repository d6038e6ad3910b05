"""Our model of RunPod: the pods, catalogue, logs and bills of its REST API v2 on loopback, over HTTP.

Paths, fields, statuses and the words of errors are from RunPod's published openapi.json (2.0.0, 2026-08-20); the
account and the balance from its documentation of 2026-11-13 and 2026-11-18, whose paths are our belief. It never ran
against RunPod. What is only believed is marked [B] where it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from tests.clouds.rest import Call, Refusal, Reply, Request, RestServer, Unmodelled
from tests.clouds.rest_faults import Fault
from tests.clouds.runpod import checks
from tests.clouds.runpod.pods import NO_STOCK, Model, Pod, shown, stamp

KEY = "rpa_OF_NOBODY_0123456789"
ACCOUNT = "user_2abc123"
MINUTE, HOUR, DAY = (60, 60), (3000, 3600), (50_000, 86_400)  # calls in so many seconds, as in RunPod's example
TITLES = {400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
          405: "Method Not Allowed", 409: "Conflict", 422: "Unprocessable Entity", 429: "Too Many Requests",
          500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip
_ROUTES = (
    ("GET", re.compile(r"/v2/pods"), "pods.list"),
    ("POST", re.compile(r"/v2/pods"), "pods.create"),
    ("GET", re.compile(r"/v2/pods/(?P<pod>[^/]+)"), "pods.get"),
    ("DELETE", re.compile(r"/v2/pods/(?P<pod>[^/]+)"), "pods.delete"),
    ("POST", re.compile(r"/v2/pods/(?P<pod>[^/]+)/action"), "pods.action"),
    ("GET", re.compile(r"/v2/pods/(?P<pod>[^/]+)/logs"), "pods.logs"),
    ("GET", re.compile(r"/v2/catalog/gpus"), "catalog.gpus"),
    ("GET", re.compile(r"/v2/billing/pods"), "billing.pods"),
    ("GET", re.compile(r"/v2/billing/balance"), "billing.balance"),  # [B] the path
    ("GET", re.compile(r"/v2/account"), "account.get"),  # [B] the path
)


class RunpodServer(RestServer):
    """One server with one account. `PUT /v2/account/ssh-keys` and `PATCH` are not modelled: whoever sends one fails.

    `pod_key_reads` says what a pod's own key may read: "own" [B], or "all" of the account's pods.
    """

    def forget(self) -> None:
        """Begin anew: no pods, 100 USD of credit, the usual stock."""
        super().forget()
        self.model = Model(self.clock)
        self.pod_key_reads = "own"
        self.rate = False  # whether the limit of calls per minute is kept, not only shown

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which cloudgpu talks to it."""
        return {"CLOUDGPU_RUNPOD_ENDPOINT": self.url, "RUNPOD_API_KEY": KEY}

    # What tests do to it, and ask of it.

    def pod(self, id: str) -> Pod:  # noqa: A002
        """Return a pod, also one that has ended; KeyError for none."""
        with self.lock:
            self.clock.settle()
            return {**self.model.gone, **self.model.pods}[id]

    def pods(self) -> list[str]:
        """Return the ids of the pods that there are, stopped ones included."""
        with self.lock:
            self.clock.settle()
            return list(self.model.pods)

    def say(self, id: str, line: str) -> None:  # noqa: A002
        """Let a pod's container write a line into its log."""
        with self.lock:
            self.model.say(self.model.pods[id], line)

    def inside(self, call: Call, fault: Fault) -> bool:
        """Say that an error of kind "made" comes after the pod was made."""
        return fault.error == "made"

    def run_dry(self) -> None:
        """Let the balance be gone: pods are deleted with their `/workspace`."""
        with self.lock:
            self.model.balance = Fraction(0)
            for pod in list(self.model.pods.values()):
                self.model.end(pod)

    def no_capacity(self, times: int = 1, **where: Any) -> Fault:
        """Refuse the next launches for want of GPUs: 400, with a sentence alone."""
        return self.faults.add("pods.create", error="stock", status=400, message=NO_STOCK, times=times, **where)

    def failed_after(self, action: str = "pods.create", status: int = 500) -> Fault:
        """Do the next call of an action, and answer with 5xx all the same."""
        return self.faults.add(action, error="made", status=status)

    # How a request is answered.

    def read(self, request: Request) -> tuple[str, dict[str, str]]:
        """Return the action of a request. Raises Unmodelled."""
        for method, pattern, action in _ROUTES:
            found = pattern.fullmatch(request.path)
            if found and method == request.method:
                return action, found.groupdict()
        raise Unmodelled(f"{request.method} {request.path}")

    def place(self, call: Call) -> Mapping[str, Any]:
        """Return what is known of a launch: its GPU, cloud and data centre."""
        body = call.body if isinstance(call.body, dict) else {}
        where = (body.get("dataCenterIds") or [""])[0]
        return {"gpu": (body.get("gpu") or {}).get("id"), "cloud": body.get("cloud"), "where": where}

    def answer(self, call: Call, request: Request) -> Reply:
        """Return the answer to a call. Raises Refusal."""
        whose = self._whose(request, call)
        if self.rate and call.number > MINUTE[0]:
            message = "rate limit exceeded for the minute window"
            raise Refusal("rate", message, 429, headers={"Retry-After": "12"})
        name = call.action.replace(".", "_")
        reply: Reply = getattr(self, f"_{name}")(call, request, whose)
        if request.fault is not None and request.fault.error == "made":
            raise Refusal("made", "internal error", request.fault.status)
        return Reply(reply.status, reply.body, {**self._limits(call), **reply.headers}, reply.error)

    def _whose(self, request: Request, call: Call) -> Pod | None:
        """Return the pod whose own key a call bears; None for the account's key. Raises Refusal."""
        login = request.headers.get("Authorization", "")
        if not login.startswith("Bearer "):
            raise Refusal("login", "missing bearer token", 401)
        key = login.removeprefix("Bearer ")
        if key == KEY:
            return None
        pod = next((one for one in self.model.pods.values() if one.key == key), None)
        if pod is None:
            raise Refusal("login", "invalid API key", 401)
        if call.action not in {"pods.get", "pods.action", "pods.list"}:
            raise Refusal("scope", "access denied", 403)
        if self.pod_key_reads == "own" and call.where.get("pod") != pod.id:
            raise Refusal("scope", "access denied", 403)
        return pod

    def _limits(self, call: Call) -> dict[str, str]:
        spent = call.number
        left = (("minute", MINUTE), ("hour", HOUR), ("day", DAY))
        state = ", ".join(f'"{name}";r={max(0, most - spent)};t=12' for name, (most, _) in left)
        policy = ", ".join(f'"{name}";q={most};w={seconds}' for name, (most, seconds) in left)
        return {"RateLimit": state, "RateLimit-Policy": policy}

    def _found(self, call: Call) -> Pod:
        pod = self.model.pods.get(call.where["pod"])
        if pod is None:
            raise Refusal("gone", "pod not found", 404)
        return pod

    def _pods_list(self, call: Call, request: Request, whose: Pod | None) -> Reply:
        if call.query.keys() - {"includeClusterPods"}:
            raise Refusal("schema", f"unknown parameter in {sorted(call.query)}", 422)
        return Reply(200, {"pods": [shown(pod) for pod in self.model.listed()]})

    def _pods_create(self, call: Call, request: Request, whose: Pod | None) -> Reply:
        checks.creation(call.body)
        return Reply(201, shown(self.model.make(call.body)))

    def _pods_get(self, call: Call, request: Request, whose: Pod | None) -> Reply:
        return Reply(200, shown(self._found(call)))

    def _pods_delete(self, call: Call, request: Request, whose: Pod | None) -> Reply:
        self.model.end(self._found(call))
        return Reply(204)

    def _pods_action(self, call: Call, request: Request, whose: Pod | None) -> Reply:
        pod, action = self._found(call), checks.action(call.body)
        self.model.act(pod, action)
        return Reply(204) if action == "terminate" else Reply(200, shown(pod))

    def _pods_logs(self, call: Call, request: Request, whose: Pod | None) -> Reply:
        pod, source = self._found(call), call.query.get("source")
        if source not in (None, "container", "system") or call.query.keys() - {"source", "tail", "since"}:
            raise Refusal("schema", f"source or a parameter is not valid: {call.query}", 422)
        tail = int(call.query.get("tail", "100"))
        if not 0 <= tail <= 5000:
            raise Refusal("schema", "tail: maximum: 5000", 422)
        said = [{"ts": stamp(self.clock.now()), "source": "container", "line": line} for line in pod.read_log()]
        lines = [one for one in (*pod.lines, *said) if source in (None, one["source"])]
        shown_now = lines[len(lines) - tail :] if tail else []
        events = [f"id: {one['ts']}/{at:012}\ndata: {json.dumps(one)}\n\n" for at, one in enumerate(shown_now)]
        return Reply(200, "".join(events), {"Content-Type": "text/event-stream"})

    def _catalog_gpus(self, call: Call, request: Request, whose: Pod | None) -> Reply:
        asked = checks.catalogue(call.query)
        return Reply(200, {"gpus": [_type(one, asked) for one in self.model.types.values()]})

    def _billing_pods(self, call: Call, request: Request, whose: Pod | None) -> Reply:
        if call.query.keys() - {"startTime", "endTime", "bucketSize", "lastN", "podId"}:
            raise Refusal("schema", f"unknown parameter in {sorted(call.query)}", 422)
        now, records = self.clock.now(), []
        for pod in {**self.model.gone, **self.model.pods}.values():
            pod.book.until(now)
            if call.query.get("podId") in (None, pod.id):
                records.append(
                    {
                        "startTime": stamp(pod.made),
                        "endTime": stamp(now),
                        "podId": pod.id,
                        "totalAmount": float(pod.book.total),
                        "gpuAmount": float(pod.book.compute),
                        "cpuAmount": 0.0,
                        "diskAmount": float(pod.book.storage),
                    }
                )
        names = ("totalAmount", "gpuAmount", "cpuAmount", "diskAmount")
        totals = {name: sum(one[name] for one in records) for name in names}
        meta = {
            "query": dict(call.query),
            "recordCount": len(records),
            "uniquePodCount": len(records),
            "totals": totals,
        }
        return Reply(200, {"records": records, "metadata": meta})

    def _billing_balance(self, call: Call, request: Request, whose: Pod | None) -> Reply:
        return Reply(200, {"balanceAmount": float(self.model.balance), "billingMode": self.model.mode})

    def _account_get(self, call: Call, request: Request, whose: Pod | None) -> Reply:
        return Reply(200, {"id": ACCOUNT, "email": "dev@example.com"})

    def refusal(self, call: Call, refusal: Refusal) -> Reply:
        """Return an error as application/problem+json."""
        status = refusal.status or 400
        body = {"title": TITLES.get(status, "Error"), "status": status, "detail": refusal.message}
        if "errors" in refusal.more:
            body["errors"] = refusal.more["errors"]
        headers = {"Content-Type": "application/problem+json", **refusal.more.get("headers", {})}
        limits = {} if status == 401 else self._limits(call)
        return Reply(status, body, {**limits, **headers}, refusal.code)

    def denial(self, call: Call) -> Refusal:
        """Return what a key without the right is told."""
        return Refusal("scope", "access denied", 403)

    def power(self, verb: str, machine: str) -> None:
        """Do what a program in a pod asks for."""
        with self.lock:
            self.model.stop(self.model.pods[machine])


def _type(one: Any, asked: tuple[str, int] | None) -> dict[str, Any]:
    """Return a GPU type as the catalogue shows it, with its stock where that is asked for."""
    found = {
        "id": one.id,
        "name": one.name,
        "pool": None,
        "manufacturer": one.maker,
        "memory": one.memory,
        "secure": bool(one.stock.get("SECURE")),
        "community": bool(one.stock.get("COMMUNITY")),
        "price": {"secure": float(one.secure), "community": float(one.community)},
        "maxCount": {"secure": one.most[0], "community": one.most[1]},
    }
    if asked is None:
        return found
    cloud, count = asked
    most = one.most[0] if cloud == "SECURE" else one.most[1]
    free = {where: left for where, left in one.stock.get(cloud, {}).items() if left >= count <= most}
    found["availability"] = _level(sum(free.values()))
    places = [{"id": name, "name": name, "availability": _level(left)} for name, left in free.items() if name]
    return {**found, "dataCenters": places} if places else found  # [B] COMMUNITY names none


def _level(left: int) -> str:
    return "NONE" if left < 1 else "LOW" if left < 3 else "MEDIUM" if left < 10 else "HIGH"
