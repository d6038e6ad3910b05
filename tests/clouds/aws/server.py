"""Our model of AWS: moto's server on loopback behind a wrapper that supplies what moto lacks or gets silently wrong.

What it says is from AWS's documentation and from public reports; it never ran against AWS. Words and orders that
are only believed say so where they stand. Unmodified boto3 talks to it over HTTP (`AWS_ENDPOINT_URL`).
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from moto.core.model_instances import reset_model_data
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from tests.clouds import ssh
from tests.clouds.aws import (
    budgets,
    checks,
    ec2,
    images,
    machines,
    placements,
    pricing,
    quotas,
    scheduler,
    simulator,
    types,
    userdata,
)
from tests.clouds.aws.calls import Call, read
from tests.clouds.aws.errors import AwsError
from tests.clouds.aws.faults import Fault, Faults
from tests.clouds.aws.model import ACCOUNT, Model
from tests.clouds.aws.moto_state import drop_backends
from tests.clouds.aws.sdk import keep_keys, keep_models

NEED_NOTHING = {"DescribeInstanceTypes", "DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory"}
Answer = tuple[int, str, bytes]
BESIDE_MOTO: dict[str, Callable[[Call], Answer]] = {  # calls that moto lacks, of services that it has
    "SimulatePrincipalPolicy": simulator.answer,
    **{name: (lambda call: _json(budgets.CALLS[call.action](call.parameters))) for name in budgets.CALLS},
}
Hook = Callable[[int, str, str], str | None]
NOT_DRY = {"ModifyInstanceAttribute", "UpdateSecurityGroupRuleDescriptionsIngress"}  # moto would do them
ENVIRON = {
    "AWS_ACCESS_KEY_ID": "AKIAMODELOFAWS000000",
    "AWS_SECRET_ACCESS_KEY": "model",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class AwsServer:
    """One server. `calls` are the requests so far, `unmodelled` those it could not answer, `faults` what goes wrong.

    `on_call(number, action, phase)` is told of each call `before` and `after` it is done, outside of any lock;
    when it returns "drop", the connection closes there, without an answer.
    One at a time in a process: moto keeps its state in modules.
    """

    def __init__(self, port: int = 0, ssh_port: int = 0) -> None:
        ec2.install()
        keep_models()
        keep_keys()
        self.faults = Faults()
        self.on_call: Hook | None = None
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.RLock()
        self._port, self._ssh_port = port, ssh_port
        self._machines: ssh.Machines | None = None
        self._http: BaseWSGIServer | None = None
        self._forget()

    def _forget(self) -> None:
        self.model = ec2.Ec2.model = Model()
        self.calls: list[Call] = []
        self.unmodelled: list[str] = []
        self._numbers = itertools.count(1)

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._http is not None, "start it first"
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which boto3 talks to it."""
        return {"AWS_ENDPOINT_URL": self.url, **ENVIRON}

    def start(self) -> AwsServer:
        """Listen on a free port of loopback, in threads."""
        self._http = make_server("127.0.0.1", self._port, self._answer, threaded=True, request_handler=_Quiet)
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        """End it."""
        if self._machines is not None:
            self._machines.end()
            self._machines = None
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def reset(self) -> None:
        """Forget everything: machines, calls, faults, the clock."""
        with self._lock:
            drop_backends()
            reset_model_data()
            types.withdraw()
            self.faults.clear()
            self.on_call = None
            if self._machines is not None:
                self._machines.close_all()
            self._forget()

    # What tests do to it, and ask of it.

    def advance(self, seconds: float) -> None:
        """Let its clock run ahead, and everything happen that was to happen until then."""
        with self._lock:
            goal = self.model.now() + timedelta(seconds=seconds)
            while (at := scheduler.next_due(self.model)) is not None and at <= goal:
                self.model.ahead += max(at - self.model.now(), timedelta())  # a schedule fires at its own time
                self.model.settle()
            self.model.ahead += max(goal - self.model.now(), timedelta())
            self.model.settle()

    def dwell(self, **seconds: float) -> None:
        """Let states last on its clock: pending, stopping, shutting_down, terminated, creating, deleting, snapshot.

        `math.inf` is until `finish`.
        """
        self.model.dwell_s.update({name.replace("_", "-"): one for name, one in seconds.items()})

    def finish(self, what: str) -> None:
        """Let a machine, snapshot or image come out of the state in which it dwells."""
        with self._lock:
            self.model.hurry(what)

    def instance(self, instance_id: str) -> Any:
        """Return moto's own record of a machine, in whichever region it is."""
        return next(one for one in self.instances() if one.id == instance_id)

    def instances(self, *, live: bool = False) -> list[Any]:
        """Return the machines of all regions; `live` are those that are not ending or gone."""
        with self._lock:
            self.model.settle()
            found = [one for region in list(ec2.ec2_backends[ACCOUNT].values()) for one in region.all_instances()]
        return [one for one in found if not live or one.state not in {"terminated", "shutting-down"}]

    @property
    def ssh_port(self) -> int:
        """The port of SSH on every machine: no two servers have the same one, though addresses repeat."""
        assert self._http is not None, "start it first"
        return self._ssh_port or self._http.server_port

    def serve_ssh(self) -> ssh.Machines:
        """Let machines answer SSH from now on until the next reset, at their own addresses."""
        if self._machines is None:
            self._machines = ssh.Machines(self.url, self.ssh_port)
        self.model.watchers.append(lambda one: self._machines.watch(served(one)))
        return self._machines

    def interrupt(self, instance_id: str) -> None:
        """Take a spot machine back, as AWS does when it needs the capacity; the two minutes' notice is over."""
        with self._lock:
            machines.interrupt(ec2.Ec2, self.instance(instance_id))

    def shut_down(self, instance_id: str) -> None:
        """Shut a machine down from inside."""
        with self._lock:
            machines.shut_down(ec2.Ec2, self.instance(instance_id))

    def leave(self, name: str, zone: str, count: int) -> None:
        """Let a zone have room for so many more machines of a type, launched or started, until the next reset."""
        with self._lock:
            used = placements.live(ec2.backend(zone[:-1]), name, zone)
            self.model.room[(name, zone)] = used + count

    def offer(self, name: str, zone: str) -> None:
        """Offer a type in a zone until the next reset."""
        types.offer(name, zone)

    def user_data(self, instance_id: str) -> list[userdata.Part]:
        """Return the parts of what a machine was given at its launch."""
        given = self.instance(instance_id).user_data
        return userdata.parts(None if given is None else str(given))

    def called(self, action: str) -> list[Call]:
        """Return the calls of an action."""
        return [call for call in self.calls if call.action == action]

    # How a request is answered.

    def _answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"].startswith("/model/shut-down/"):
            self.shut_down(environ["PATH_INFO"].rpartition("/")[2])
            return _said(start_response, _json({}))
        with self._lock:
            call = read(next(self._numbers), environ)
            self.calls.append(call)
        fault = self.faults.met(call, self._place(call))
        self.faults.delay()
        if fault and fault.effect == "hang":
            fault.over.wait()
        if self._drops(call, "before") or (fault and fault.effect in {"refused", "hang"}):
            return self._close(call, environ)
        answer = self._done(call, environ, fault)
        if fault and fault.effect == "hung":
            fault.over.wait()
        lost = self._drops(call, "after") or (fault is not None and fault.effect in {"lost", "hung"})
        self._note(call, status=answer[0], error=_code(answer), answered=not lost)
        return self._close(call, environ) if lost else _said(start_response, answer)

    def _done(self, call: Call, environ: dict[str, Any], fault: Fault | None) -> Answer:
        if fault is not None and fault.error is not None:
            return (fault.error.status, *fault.error.body(call.service))
        with self._lock:
            self.model.settle()
            try:
                return self._made(call, environ)
            except AwsError as error:
                return (error.status, *error.body(call.service))
            except Exception as error:  # noqa: BLE001  (whatever moto raises is a gap in the model)
                self.unmodelled.append(f"{call.service} {call.action}: {type(error).__name__}: {error}")
                gap = AwsError("NotModelled", self.unmodelled[-1], 501)  # a status that no SDK sends again
                return (gap.status, *gap.body(call.service))

    def _made(self, call: Call, environ: dict[str, Any]) -> Answer:
        if call.service == "servicequotas":
            return _json(quotas.answer(self.model, call.region, call.action, call.parameters))
        if call.service == "pricing" and call.action == "GetProducts":
            return _json(pricing.get_products(self.model, call.parameters))
        if call.service == "scheduler":
            return _json(scheduler.answer(self.model, call))
        if call.action in BESIDE_MOTO:
            return BESIDE_MOTO[call.action](call)
        if call.service == "ec2":
            checks.filters(call.parameters)
        self._furnish(call)
        if call.action in types.CALLS:
            place = call.action, call.region, json.dumps(call.parameters, sort_keys=True)
            return types.kept(place, lambda: self._of_moto(environ))
        return self._of_moto(environ)

    def _of_moto(self, environ: dict[str, Any]) -> Answer:
        answer = _through(self._moto, environ)
        if answer[0] >= 400 and answer[2].lstrip().lower().startswith((b"<!doctype html", b"<html")):
            raise NotImplementedError(answer[2][:200].decode(errors="replace"))
        return answer

    def _furnish(self, call: Call) -> None:
        """Put into a region what AWS has there; once, when it is first asked."""
        where = (call.service, call.region)
        if where in self.model.furnished or call.service not in {"ec2", "ssm"} or call.action in NEED_NOTHING:
            return
        self.model.furnished.add(where)
        if call.service == "ec2":
            images.furnish(ec2.backend(call.region))
        else:
            from moto.ssm.models import ssm_backends

            images.furnish_parameters(ssm_backends[ACCOUNT][call.region])

    def _place(self, call: Call) -> dict[str, str]:
        """Return the zone, type and market of a launch or a start."""
        if call.action == "StartInstances":
            known = {one.id: one for one in self.instances()}
            found = [known[one] for one in call.parameters.get("InstanceIds", []) if one in known]
            place = {"zone": found[0].availability_zone, "type": found[0].instance_type} if found else {}
            return {**place, "market": (found[0].lifecycle or "on-demand") if found else ""}
        if call.action != "RunInstances":
            return {}
        with self._lock:
            zone = checks.zone_of(ec2.backend(call.region), call.parameters)
        market = (call.parameters.get("InstanceMarketOptions") or {}).get("MarketType") or "on-demand"
        return {"zone": zone or "", "type": call.parameters.get("InstanceType", ""), "market": market}

    def _drops(self, call: Call, phase: str) -> bool:
        return self.on_call is not None and self.on_call(call.number, call.action, phase) == "drop"

    def _note(self, call: Call, **how: Any) -> None:
        """Note how a call ended, and not again; not of one from before the last reset, by a command that has died."""
        with self._lock:
            if call in self.calls[call.number - 1 : call.number]:
                self.calls[call.number - 1] = call._replace(**how)

    def _close(self, call: Call, environ: dict[str, Any]) -> list[bytes]:
        self._note(call, answered=False)
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError  # werkzeug takes it for a client that has gone


def served(one: Any) -> ssh.Machine:
    """Return a machine of moto as the SSH servers of machines know it."""
    given = userdata.cloud_config(None if one.user_data is None else str(one.user_data))
    return ssh.Machine(one.id, one.state, given, [host for host in (one.public_ip, one.private_ip) if host])


class _Quiet(WSGIRequestHandler):
    """Writes no log."""

    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # the head and the body leave together

    def log(self, *args: Any, **how: Any) -> None:
        """Say nothing."""


def _through(app: Any, environ: dict[str, Any]) -> Answer:
    """Return what a WSGI application answers."""
    seen: dict[str, Any] = {}

    def start(status: str, headers: list[tuple[str, str]], _error: Any = None) -> None:
        seen.update(status=int(status.split(maxsplit=1)[0]), headers={name.lower(): value for name, value in headers})

    body = b"".join(app(environ, start))
    return seen["status"], seen["headers"].get("content-type", "text/xml"), body


def _said(start_response: Any, answer: Answer) -> list[bytes]:
    status, kind, body = answer
    start_response(f"{status} {status}", [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


def _json(result: dict[str, Any]) -> Answer:
    return 200, "application/x-amz-json-1.1", json.dumps(result, default=str).encode()


def _code(answer: Answer) -> str:
    """Return the error's code in an answer, if it has one."""
    status, kind, body = answer
    if status < 400:
        return ""
    if "json" in kind:
        return str(json.loads(body).get("__type", ""))
    return body.partition(b"<Code>")[2].partition(b"</Code>")[0].decode()
