"""Our model of vast.ai on loopback, over HTTP: the market, contracts with three meters, the account's credit.

Requests are held to what the vendor's OpenAPI files, its guides and its recorded command line say, as the project's
notes have them. What is only believed says [B]. It never ran against vast.ai.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from tests.clouds.rest import Call, Refusal, Reply, Request, RestServer
from tests.clouds.rest_faults import Fault
from tests.clouds.vast import market
from tests.clouds.vast.contracts import Contract
from tests.clouds.vast.requests import PAGE, faults_of, routed

KEY = "of-nobody-0123456789abcdef0123456789abcdef"
USER = 4711
ANOTHER_USER = 815
FIRST = 20_000_001  # the id of the first contract
SIGNED = {"response-content-type": "", "signature": "of-the-store"}  # [B] the query of a log's URL
TOO_FREQUENT = "API requests too frequent endpoint threshold=1.0"
_SENTENCES = {  # by word: the usual status, and what is said
    "no_such_ask": (404, "error 404/3603: no_such_ask  is not available"),
    "no_such_instance": (404, "No such instance."),
    "auth_error": (401, "Invalid user key"),
    "forbidden": (403, "This key may not do that."),  # [B]
    "invalid_args": (400, "Invalid arguments"),
    "invalid_price": (400, "Invalid price"),
    "label_too_long": (400, "Label too long"),
    "missing_billing": (400, "Your account lacks credit; see the billing page."),  # [B]
}


class VastServer(RestServer):
    """One server. `malformed` are requests that it does not know: it answers 400, and the test fails."""

    def forget(self) -> None:
        """Begin anew: the usual hosts, no contracts, 100 dollars."""
        super().forget()
        self.hosts = market.usual()
        self.begun = self.clock.now().timestamp()
        self.contracts: dict[int, Contract] = {}
        self.malformed: list[str] = []
        self.keys = {KEY: USER}
        self.deposit: Decimal | None = Decimal(100)
        self.filters_lists = True  # whether the live listing filters by labels was never seen: tests let it not do so
        self.boot: Callable[[Contract], object] = lambda _: None  # told when a container begins and ends to run
        self.halt: Callable[[Contract], object] = lambda _: None

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which cloudgpu talks to it."""
        return {"CLOUDGPU_VAST_ENDPOINT": self.url, "VAST_API_KEY": KEY}

    # What tests do to it, and ask of it.

    def contract(self, id: str) -> Contract:  # noqa: A002
        """Return a contract, also one that has ended. Raises KeyError for none."""
        return self.contracts[int(id)]

    def living(self) -> list[Contract]:
        """Return the contracts that exist: their storage at least is billed."""
        with self.lock:
            self.clock.settle()
            return [one for one in self.contracts.values() if one.ended is None]

    def bill(self, id: str) -> dict[str, Decimal]:  # noqa: A002
        """Return what each meter of a contract shows now."""
        return self.contract(id).bill(self.clock.now())

    def credit(self) -> Decimal:
        """Return what is left of the deposit."""
        spent = sum((sum(one.bill(self.clock.now()).values()) for one in self.contracts.values()), Decimal(0))
        return (self.deposit or Decimal(0)) - spent

    def refuse_with_contract(self, error: str = "invalid_price", *, times: int = 1, status: int = 400) -> Fault:
        """Let renting say no and all the same leave a contract that is stopped, whose storage is billed."""
        return self.faults.put(Fault("leaves", "rent", {}, times, error, status))

    def too_frequent(self, action: str, *, times: int = 1) -> Fault:
        """Answer 429 with plain text, as vast.ai does."""
        return self.faults.add(action, error="too_frequent", status=429, body=TOO_FREQUENT, times=times)

    def outbid(self, id: str) -> None:  # noqa: A002
        """Stop an interruptible contract, as a higher bid does: without notice. Its wish to run stays [B]."""
        with self.lock:
            one = self.contract(id)
            one.run(self.clock.now(), on=False)
            one.actual = "exited"

    def break_down(self, id: str) -> None:  # noqa: A002
        """Let a container fail for good at its start."""
        with self.lock:
            one = self.contract(id)
            self.clock.cancel(f"loading {one.id}")
            one.run(self.clock.now(), on=False)
            one.actual, one.status_msg = "created", "Error: OCI runtime create failed: unable to start container"

    def go_offline(self, id: str) -> None:  # noqa: A002
        """Let a host vanish from the net: neither GPU nor storage is billed meanwhile."""
        with self.lock:
            one, now = self.contract(id), self.clock.now()
            one.run(now, on=False)
            one.actual = "offline"
            one.offline.append((now, None))

    def come_back(self, id: str) -> None:  # noqa: A002
        """Let the host of a container be there again, which runs as before."""
        with self.lock:
            one, now = self.contract(id), self.clock.now()
            one.offline[-1] = (one.offline[-1][0], now)
            one.run(now, on=True)
            one.actual = "running"

    def say(self, id: str, text: str) -> None:  # noqa: A002
        """Write a line into a container's log."""
        self.contract(id).log += f"{text}\n"

    def run_dry(self) -> None:
        """Let the credit be gone: everything is stopped."""
        with self.lock:
            self.deposit -= self.credit()
            for one in self.contracts.values():
                self._set(one, "stopped")

    # How a request is answered.

    def read(self, request: Request) -> tuple[str, dict[str, str]]:
        """Return the action of a request."""
        return routed(request.method, request.path)

    def place(self, call: Call) -> Mapping[str, Any]:
        """Return the machine of an ask, for faults that are meant for some only."""
        return {}

    def refusal(self, call: Call, refusal: Refusal) -> Reply:
        """Return an error as vast.ai says it."""
        word = refusal.code or "invalid_args"
        status, sentence = _SENTENCES.get(word, (400, word))
        status = refusal.status or status
        said = {"success": False, "error": word, "msg": refusal.message or sentence, **refusal.more}
        return Reply(status, said, error=word)

    def denial(self, call: Call) -> Refusal:
        """Return what is said to a key that may not do this [B]."""
        return Refusal("forbidden")

    def answer(self, call: Call, request: Request) -> Reply:
        """Answer a call."""
        login = request.headers.get("Authorization", "")
        if call.action == "log":
            if login:
                self.malformed.append("the key was sent to whoever keeps the logs")
            if call.query != SIGNED:  # the store signs the whole query
                return Reply(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>", error="signature")
            return self._log(call.where["id"])
        user = self._user(call, login.removeprefix("Bearer "))
        if user is None or not login.startswith("Bearer "):
            raise Refusal("auth_error")
        wrong = faults_of(call.action, call.query, call.body)
        if wrong:
            self.malformed += [f"{call.action}: {one}" for one in wrong]
            raise Refusal("label_too_long" if wrong[0] == "label_too_long" else "invalid_args", wrong[0])
        if call.action == "user":
            return Reply(200, {"id": user, "email": "lab@example.org", "balance": float(self.credit()), "ssh_key": ""})
        return getattr(self, f"_{call.action}")(call, request)

    def _user(self, call: Call, key: str) -> int | None:
        """Return whose key it is; that of a container may look at and change its own contract, and nothing else [B]."""
        own = next((one for one in self.contracts.values() if one.key == key), None)
        if own is None:
            return self.keys.get(key)
        if call.action not in ("get", "change", "destroy") or call.where.get("id") != str(own.id):
            raise Refusal("forbidden")
        return USER

    def _search(self, call: Call, _request: Request) -> Reply:
        return Reply(200, {"offers": market.search(self.hosts, call.body, self.begun)})

    def _rent(self, call: Call, request: Request) -> Reply:
        if self.credit() <= 0:
            raise Refusal("missing_billing")
        found = [(host, ask) for host in self.hosts for ask in host.asks(self.begun)]
        host, ask = next(((host, one) for host, one in found if one["id"] == int(call.where["ask"])), (None, None))
        if host is None or ask is None:
            raise Refusal("no_such_ask")
        bid = call.body.get("price")
        leaves = request.fault is not None and request.fault.effect == "leaves"
        if bid is not None and bid < ask["min_bid"]:
            leaves = True
        one = Contract(FIRST + len(self.contracts), ask, call.body, self.clock.now(), bid)
        one.label = call.body.get("label", "")
        one.port = 40000 + one.id % 10000
        self.contracts[one.id] = one
        host.taken += ask["num_gpus"]
        self.clock.later(f"listed {one.id}", "listed", lambda: setattr(one, "listed", True))
        if leaves:
            one.actual, one.intended, one.refused = "exited", "stopped", True
            word = request.fault.error if request.fault and request.fault.effect == "leaves" else "invalid_price"
            status = request.fault.status if request.fault and request.fault.effect == "leaves" else 400
            raise Refusal(word, "", status, new_contract=one.id)
        self._set(one, call.body.get("target_state", "running"))
        return Reply(200, {"success": True, "new_contract": one.id, "instance_api_key": one.key})

    def _list(self, call: Call, _request: Request) -> Reply:
        filters = json.loads(call.query.get("select_filters", "{}"))
        rows = [one.shown() for one in self.contracts.values() if one.ended is None and one.listed]
        if self.filters_lists:
            rows = [row for row in rows if all(market.OPERATORS[word](row[name], value)
                    for name, wanted in filters.items() for word, value in wanted.items())]  # fmt: skip
        begin, limit = int(call.query.get("after_token", "0")), int(call.query.get("limit", PAGE))
        page = rows[begin : begin + limit]
        more = str(begin + limit) if begin + limit < len(rows) else None
        return Reply(200, {"success": True, "instances": page, "next_token": more, "total_instances": len(rows)})

    def _found(self, call: Call) -> Contract | None:
        one = self.contracts.get(int(call.where["id"]))
        return one if one is not None and one.ended is None else None

    def _get(self, call: Call, _request: Request) -> Reply:
        one = self._found(call)
        return Reply(200, {"instances": None if one is None else one.shown()})

    def _change(self, call: Call, _request: Request) -> Reply:
        one = self._found(call)
        if one is None:
            raise Refusal("no_such_instance")
        if "label" in call.body:
            one.label = call.body["label"]
        else:
            self._set(one, call.body["state"])
        return Reply(200, {"success": True})

    def _destroy(self, call: Call, _request: Request) -> Reply:
        one = self._found(call)
        if one is None:
            raise Refusal("no_such_instance")
        one.run(self.clock.now(), on=False)
        self.clock.cancel(f"loading {one.id}")
        if self.clock.when(f"ends {one.id}") is None:
            self.clock.later(f"ends {one.id}", "ending", lambda: self._end(one))
        return Reply(200, {"success": True})

    def _end(self, one: Contract) -> None:
        self.halt(one)
        one.ended = self.clock.now()
        for host in self.hosts:
            if host.machine_id == one.ask["machine_id"]:
                host.taken = max(0, host.taken - one.ask["num_gpus"])

    def _logs(self, call: Call, _request: Request) -> Reply:
        one = self._found(call)
        if one is None:
            raise Refusal("no_such_instance")
        self.clock.later(f"log {one.id}", "logs", lambda: self._keep_log(one))
        return Reply(200, {"success": True, "result_url": f"{self.url}/logs/{one.id}?{urlencode(SIGNED)}", "msg": ""})

    def _keep_log(self, one: Contract) -> None:
        one.shown_log = one.log if one.read_log is None else one.read_log()

    def _log(self, id_: str) -> Reply:
        one = self.contracts.get(int(id_))
        said = None if one is None else one.shown_log
        if said is None:
            return Reply(403, "<Error><Code>AccessDenied</Code></Error>", {"Content-Type": "application/xml"})
        return Reply(200, said, {"Content-Type": "text/plain"})

    def _set(self, one: Contract, state: str) -> None:
        if one.ended is not None or (one.actual == "created" and "failed" in one.status_msg):
            return
        one.intended = state
        if state == "stopped":
            self.clock.cancel(f"loading {one.id}")
            self.clock.later(f"stops {one.id}", "stopping", lambda: self._stopped(one))
        elif one.actual != "running":
            self.clock.cancel(f"stops {one.id}")
            one.actual = "loading" if one.actual is None else one.actual
            self.clock.later(f"loading {one.id}", "loading", lambda: self._runs(one))

    def _stopped(self, one: Contract) -> None:
        one.run(self.clock.now(), on=False)
        if one.actual != "exited":
            self.halt(one)
        one.actual = "exited"

    def _runs(self, one: Contract) -> None:
        if one.ended is None and one.actual != "running":
            one.run(self.clock.now(), on=True)
            one.actual = "running"
            self.boot(one)
