"""A server on loopback for our models of clouds that speak REST: it records each call, and goes wrong as it is told.

What is the same for Google Cloud and Azure: calls, faults, lost replies, calls that the model lacks (501, and the
test fails), the hook for tests that kill a program at a call. A cloud's model is a subclass that says what a request
asks (`read`), what is answered (`answer`), and in which words errors come (`refusal`).
"""

from __future__ import annotations

import http.server
import itertools
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.clouds.clock import Clock
from tests.clouds.rest_faults import Fault, Faults

Hook = Callable[[int, str, str], str | None]


class Call(NamedTuple):
    """One request, and how it ended: the status that was made for it, and whether the client got that answer.

    `where` has the parameters of its path (project, zone, instance ...). A status of 0 is a call that was closed
    before it was done.
    """

    number: int
    action: str
    where: dict[str, str]
    query: dict[str, str]
    body: Any
    status: int = 0
    error: str = ""
    answered: bool = True


@dataclass
class Request:
    """A request as it came; `fault` is one that only the model itself can make happen."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any
    fault: Fault | None = None


@dataclass
class Reply:
    """An answer: a body that is a JSON value, text or bytes, None for none; the code of the error if it is one."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    error: str = ""


class Refusal(Exception):
    """A model's no: raised while a call is answered. Each cloud puts it into its own words in `refusal`."""

    def __init__(self, code: str, message: str = "", status: int = 0, **more: Any) -> None:
        super().__init__(message or code)
        self.code, self.message, self.status, self.more = code, message, status, more


class Unmodelled(Exception):
    """A request that the model has no answer to: 501, and the test fails."""


class RestServer:
    """One server. `calls` are the requests so far, `unmodelled` what it could not answer, `faults` what goes wrong.

    `on_call(number, action, phase)` is told of each call `before` and `after` it is done, outside of any lock;
    when it returns "drop", the connection closes there, without an answer.
    """

    def __init__(self, port: int = 0, ssl_context: ssl.SSLContext | None = None) -> None:
        self.faults = Faults()
        self.lock = threading.RLock()
        self._port, self._ssl = port, ssl_context
        self._http: _Http | None = None
        self.forget()

    def forget(self) -> None:
        """Begin anew; a subclass forgets its own state too."""
        self.on_call: Hook | None = None
        self.clock = Clock()
        self.calls: list[Call] = []
        self.unmodelled: list[str] = []
        self._numbers = itertools.count(1)

    # What a cloud's model says.

    def read(self, request: Request) -> tuple[str, dict[str, str]]:
        """Return the action that a request asks for, and the parameters of its path. Raises Unmodelled."""
        raise NotImplementedError

    def answer(self, call: Call, request: Request) -> Reply:
        """Return the answer to a call; with the lock held. Raises Refusal, Unmodelled."""
        raise NotImplementedError

    def refusal(self, call: Call, refusal: Refusal) -> Reply:
        """Return an error in the cloud's words."""
        raise NotImplementedError

    def denial(self, call: Call) -> Refusal:
        """Return what the cloud says to somebody who may not do this."""
        raise NotImplementedError

    def inside(self, call: Call, fault: Fault) -> bool:
        """Say whether the model makes a fault happen itself, while it does the call: one that comes later, say."""
        return False

    def place(self, call: Call) -> Mapping[str, Any]:
        """Return what else is known of a call, for faults that are meant for some only; with the lock held."""
        return {}

    def power(self, verb: str, machine: str) -> None:
        """Do what a program on a machine asked for (`shut-down`): the SSH servers of machines call it."""
        raise NotImplementedError

    # Starting and ending it.

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._http is not None, "start it first"
        return f"{'https' if self._ssl else 'http'}://127.0.0.1:{self._http.server_port}"

    @property
    def port(self) -> int:
        """The port at which it listens."""
        assert self._http is not None, "start it first"
        return int(self._http.server_port)

    def start(self) -> Any:
        """Listen on loopback, in threads; return itself."""
        self._http = _Http(self, self._port, self._ssl)
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        """End it."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def reset(self) -> None:
        """Forget everything: resources, calls, faults, the clock."""
        with self.lock:
            self.faults.clear()
            self.forget()

    # What tests do to it, and ask of it.

    def advance(self, seconds: float) -> None:
        """Let its clock run ahead, and everything happen that was to happen until then."""
        with self.lock:
            self.clock.advance(seconds)

    def dwell(self, **seconds: float) -> None:
        """Let states last on its clock; `math.inf` is until `finish`."""
        self.clock.dwell_s.update(seconds)

    def finish(self, what: str) -> None:
        """Let something come out of the state in which it dwells."""
        with self.lock:
            self.clock.hurry(what)

    def called(self, action: str) -> list[Call]:
        """Return the calls of an action."""
        return [call for call in self.calls if call.action == action]

    # How a request is answered.

    def handle(self, request: Request) -> Reply | None:
        """Return the answer to a request; None is a connection that closes without one."""
        if request.path.startswith("/model/"):
            verb, _, machine = request.path.removeprefix("/model/").partition("/")
            self.power(verb, unquote(machine))
            return Reply(200, {})
        call, gap = self._recorded(request)
        said = {"number": call.number, **call.where, **self._place(call)}
        fault = None if gap else self.faults.met(call.action, said)
        self.faults.delay()
        if fault and fault.effect == "hang":
            fault.over.wait()
        if self._drops(call, "before") or (fault and fault.effect in {"refused", "hang"}):
            self._note(call, answered=False)
            return None
        reply = gap or self._done(call, request, fault)
        if fault and fault.effect == "hung":
            fault.over.wait()
        lost = self._drops(call, "after") or (fault is not None and fault.effect in {"lost", "hung"})
        self._note(call, status=reply.status, error=reply.error, answered=not lost)
        return None if lost else reply

    def _recorded(self, request: Request) -> tuple[Call, Reply | None]:
        gap = None
        try:
            action, where = self.read(request)
        except Unmodelled as error:
            action, where = f"{request.method} {request.path}", {}
            gap = self._gap(str(error))
        with self.lock:
            call = Call(next(self._numbers), action, where, request.query, request.body)
            self.calls.append(call)
        return call, gap

    def _place(self, call: Call) -> Mapping[str, Any]:
        with self.lock:
            return self.place(call)

    def _done(self, call: Call, request: Request, fault: Fault | None) -> Reply:
        if fault is not None and fault.effect in {"error", "denied"} and not self.inside(call, fault):
            return self._wrong(call, fault)
        request.fault = fault
        with self.lock:
            self.clock.settle()
            try:
                return self.answer(call, request)
            except Refusal as refusal:
                return self.refusal(call, refusal)
            except Unmodelled as error:
                return self._gap(f"{call.action}: {error}")
            except Exception as error:  # noqa: BLE001  (whatever it is, it is a gap in the model)
                return self._gap(f"{call.action}: {type(error).__name__}: {error}")

    def _wrong(self, call: Call, fault: Fault) -> Reply:
        denied = fault.effect == "denied"
        refusal = self.denial(call) if denied else Refusal(fault.error, fault.message, fault.status)
        reply = self.refusal(call, refusal)
        body = reply.body if fault.body is None else fault.body
        return Reply(reply.status, body, {**reply.headers, **fault.headers}, reply.error)

    def _gap(self, what: str) -> Reply:
        self.unmodelled.append(what)
        return Reply(501, {"error": {"code": 501, "message": f"not modelled: {what}"}}, error="NotModelled")

    def _drops(self, call: Call, phase: str) -> bool:
        return self.on_call is not None and self.on_call(call.number, call.action, phase) == "drop"

    def _note(self, call: Call, **how: Any) -> None:
        with self.lock:
            if any(one is call for one in self.calls[call.number - 1 : call.number]):  # else a reset came between
                self.calls[call.number - 1] = call._replace(**how)


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, outer: RestServer, port: int, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.outer = outer
        if context is not None:  # each thread shakes hands for itself
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, *_: Any) -> None:
        """Say nothing: a client that was killed is what many tests are about."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
    wbufsize = -1  # the head and the body leave together
    server: _Http

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        sent = self.rfile.read(length)
        if len(sent) < length:  # killed between the head and the end of the body: nobody asked anything
            self.close_connection = True
            return
        parts = urlsplit(self.path)
        query = {name: found[-1] for name, found in parse_qs(parts.query, keep_blank_values=True).items()}
        body = _body(sent, self.headers.get("Content-Type", ""))
        reply = self.server.outer.handle(Request(self.command, parts.path, query, self.headers, body))
        if reply is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._say(reply)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _any  # noqa: N815  (http.server's names)

    def _say(self, reply: Reply) -> None:
        sent = reply.body if isinstance(reply.body, bytes) else _text(reply.body).encode()
        headers = {"Content-Type": "application/json; charset=utf-8", **reply.headers, "Content-Length": str(len(sent))}
        self.send_response(reply.status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)
        self.wfile.flush()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the time of the model, which every answer bears."""
        return super().date_time_string(self.server.outer.clock.now().timestamp() if timestamp is None else timestamp)

    def log_message(self, *_: Any) -> None:
        """Write no log."""


def cut_off(url: str, head: str) -> None:
    """Send a server the head of a request, of its body of 100 bytes the first, and nothing more, as one killed does."""
    at = urlsplit(url)
    with socket.create_connection((at.hostname, at.port), timeout=10) as client:
        client.sendall(f"{head}\r\nContent-Length: 100\r\n\r\nA".encode())
        client.shutdown(socket.SHUT_WR)
        client.recv(1)


def _body(sent: bytes, kind: str) -> Any:
    """Return a body as a value: of JSON, of a form, else its text; None is an empty one."""
    if not sent:
        return None
    if kind.startswith("application/x-www-form-urlencoded"):
        return {name: found[-1] for name, found in parse_qs(sent.decode(), keep_blank_values=True).items()}
    try:
        return json.loads(sent)
    except ValueError:
        return sent.decode(errors="replace")


def _text(body: Any) -> str:
    return "" if body is None else body if isinstance(body, str) else json.dumps(body, default=str)
