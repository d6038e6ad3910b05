"""A client for clouds that speak JSON over HTTPS and have no SDK that can be trusted with a launch.

A call is sent again only where that cannot do anything twice: a read, or an idempotent change. A launch is sent once:
what became of it is found out by listing machines. A redirect is never followed, so that the key goes nowhere else.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from cloudgpu.errors import AnswerTimeout, CloudgpuError, InvalidRequest, MissingExtra, ProviderUnavailable, RateLimited
from cloudgpu.parallel import send_heartbeat
from cloudgpu.providers.patience import CallTimeouts
from cloudgpu.providers.shared.calls import MAX_PARALLEL, count_request
from cloudgpu.providers.shared.errors import retry_after

if TYPE_CHECKING:
    import urllib3

READ_METHODS = frozenset({"GET", "HEAD"})
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
FIRST_REDIRECT, TOO_MANY_REQUESTS, FIRST_SERVER_ERROR = 300, 429, 500  # HTTP statuses
MAX_ANSWER_BYTES = 64 * 2**20
PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before a call is sent again, the last one from then on
_MAX_SHOWN_CHARS = 300  # characters of what a cloud says


class NotSent(ProviderUnavailable):
    """Nothing was sent: no connection was made."""

    kind = "not_sent"


class Answer(NamedTuple):
    """What a cloud answered: the HTTP status, headers by their names in lower case, and the JSON value (None: none)."""

    status: int
    headers: Mapping[str, str]
    data: Any


@dataclass(frozen=True, slots=True)
class CloudApi:
    """A cloud's REST API: its address, its login, its errors and its limits.

    `cloud` is its name for people, `provider` that of its provider, `base_url` the address before each path.
    `auth_headers` returns the headers that carry the key, and raises AuthFailed where there is none. `error_of_answer`
    returns the error for an answer of 400 or more. `intervals_s` are the least seconds between two calls of one action,
    by action, where the cloud asks for that; those of "*" between any two calls.
    """

    cloud: str
    provider: str
    base_url: str
    auth_headers: Callable[[], Mapping[str, str]]
    error_of_answer: Callable[[Answer], CloudgpuError]
    intervals_s: Mapping[str, float] = field(default_factory=dict)


class RestClient:
    """Sends one account's calls. `pause` waits that many seconds; `timeouts` limits how long a call may take in all."""

    def __init__(self, api: CloudApi, timeouts: CallTimeouts, pause: Callable[[float], None] = time.sleep) -> None:
        self.api, self.timeouts, self.pause = api, timeouts, pause
        self._pool: urllib3.PoolManager | None = None
        self._next_turn: dict[str, float] = {}  # by action: the earliest time of its next call (monotonic)
        self._turn_lock = threading.Lock()
        _check_https(api)

    def call(
        self,
        method: str,
        path: str,
        *,
        action: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        idempotent: bool | None = None,
    ) -> Answer:
        """Send a call and return its answer, whose status is below 300.

        `action` is its name for the metrics and the intervals. An `idempotent` call is sent again after no answer,
        429, or a server error; None: only a read is idempotent. Raises NotSent, AnswerTimeout, ProviderUnavailable,
        RateLimited, and what `CloudApi.error_of_answer` returns.
        """
        is_read = method in READ_METHODS
        may_repeat = is_read if idempotent is None else idempotent
        if is_read:
            self.timeouts.raise_if_timed_out_lately(action, self.api.cloud)
        started_s, tries = self.timeouts.now(), 0
        error: CloudgpuError
        while True:
            started_s += self._wait_for_turn(action)  # waiting for a turn does not count as the cloud's silence
            try:
                answer = self._send(method, path, action, query, body, started_s)
            except ProviderUnavailable as failed:
                wait_s, error = PAUSES_S[min(tries, len(PAUSES_S) - 1)], failed
            else:
                if answer.status < TOO_MANY_REQUESTS or TOO_MANY_REQUESTS < answer.status < FIRST_SERVER_ERROR:
                    self.timeouts.record_answer(action, self.api.cloud)
                    if answer.status >= 400:  # noqa: PLR2004  (RFC 9110, 15.5)
                        raise self.api.error_of_answer(answer)
                    if answer.status >= FIRST_REDIRECT:
                        raise _redirect_error(answer.status, action, self.api)
                    return answer
                left_s = self.timeouts.seconds_left(started_s, read=is_read) - self.timeouts.connect_s
                wait_s, error = self._seconds_before_retry(answer, tries, left_s), self._error_for(answer)
            tries += 1
            if not may_repeat or self.timeouts.seconds_left(started_s, read=is_read) < wait_s + self.timeouts.connect_s:
                raise error
            send_heartbeat(wait_s)
            self.pause(wait_s)

    def get(self, path: str, *, action: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the JSON value at a path. Raises as `call`."""
        return self.call("GET", path, action=action, query=query).data

    def lines(
        self, path: str, *, action: str, query: Mapping[str, str] | None = None, seconds: float = 5.0
    ) -> Iterator[str]:
        """Yield the lines of an answer that need not end (a log). Raises as `call`.

        Until `seconds` are over, or nothing has come for as long. A last line that has not ended by then is left out:
        it may be a key of which a part is missing.
        """
        import urllib3

        self._wait_for_turn(action)
        count_request(self.api.provider, action)
        ends_at = self.timeouts.now() + seconds
        headers = {"Accept": "text/event-stream", **self.api.auth_headers()}
        timeout = urllib3.Timeout(connect=self.timeouts.connect_s, read=seconds)
        try:
            reply = self._connections().request(
                "GET", self._url(path, query), headers=headers, timeout=timeout, preload_content=False, redirect=False
            )
            with closing(reply):
                if reply.status >= 400:  # noqa: PLR2004
                    raise self._error_for(_read_answer(reply, self.api.cloud))
                if reply.status >= FIRST_REDIRECT:
                    raise _redirect_error(reply.status, action, self.api)
                yield from _read_lines(reply, lambda: self.timeouts.now() >= ends_at)
        except urllib3.exceptions.ReadTimeoutError:
            return
        except urllib3.exceptions.HTTPError as error:
            raise self._transport_error(error, action, seconds) from error

    def redact(self, text: str) -> str:
        """Return a text of the cloud with the key replaced, shortened to _MAX_SHOWN_CHARS characters."""
        for value in self.api.auth_headers().values():
            for secret in filter(None, (value, value.rpartition(" ")[2])):
                text = text.replace(secret, "...")
        return " ".join(text.split())[:_MAX_SHOWN_CHARS]

    def _send(
        self, method: str, path: str, action: str, query: Mapping[str, str] | None, body: object, started_s: float
    ) -> Answer:
        import urllib3

        headers = {"Accept": "application/json", "User-Agent": "cloudgpu", **self.api.auth_headers()}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        seconds = max(self.timeouts.seconds_left(started_s, read=method in READ_METHODS), 0.001)
        timeout = urllib3.Timeout(connect=min(self.timeouts.connect_s, seconds), read=seconds)
        count_request(self.api.provider, action)
        try:
            reply = self._connections().request(
                method,
                self._url(path, query),
                body=data,
                headers=headers,
                timeout=timeout,
                preload_content=False,
                redirect=False,
            )
            with closing(reply):
                answer = _read_answer(reply, self.api.cloud)
        except urllib3.exceptions.HTTPError as error:
            raise self._transport_error(error, action, seconds) from error
        send_heartbeat()
        return answer

    def _transport_error(self, error: Exception, action: str, seconds: float) -> ProviderUnavailable:
        import ssl

        import urllib3

        cloud = self.api.cloud
        if isinstance(error, urllib3.exceptions.ProxyError):  # raised for a call that was sent through one, too
            error = error.original_error
        # Of a proxy that refuses (http.client), or is of another kind; other errors may have the password of one.
        is_shown = str(error).startswith("Tunnel connection failed") or isinstance(
            error, urllib3.exceptions.ProxySchemeUnknown
        )
        before_sending = (
            urllib3.exceptions.NewConnectionError,
            urllib3.exceptions.ConnectTimeoutError,
            urllib3.exceptions.LocationValueError,  # an address that cannot be used
        )
        if is_shown or isinstance(error, before_sending):
            why = str(error)[:_MAX_SHOWN_CHARS].rstrip(".") if is_shown else type(error).__name__
            remedy = "Look at the network and its proxy, and try again."
            return NotSent(f"{cloud} cannot be reached: {why}.", field="provider", value=self.api.provider, next=remedy)
        if isinstance(error, urllib3.exceptions.SSLError):
            details, remedy = f"{str(error)[:_MAX_SHOWN_CHARS]}.", "Look for a proxy in between."
            if error.args and isinstance(error.args[0], ssl.SSLCertVerificationError):  # in the handshake
                message = f"{cloud} does not prove who it is: {details}"
                return NotSent(message, field="provider", value=self.api.provider, next=remedy)
            # urllib3 raises the same class where an answer cannot be decrypted: the call has been sent by then
            message = f"The encrypted connection to {cloud} broke during {action}: {details}"
            return AnswerTimeout(message, field="provider", value=self.api.provider, next=remedy)
        if isinstance(error, urllib3.exceptions.TimeoutError):
            return self.timeouts.record_timeout(action, cloud, round(seconds, 1))
        message = f"{cloud} did not answer {action} to its end: {type(error).__name__}."
        return AnswerTimeout(message, field="provider", value=self.api.provider, next="Try again in a minute.")

    def _error_for(self, answer: Answer) -> CloudgpuError:
        if answer.status != TOO_MANY_REQUESTS:
            return self.api.error_of_answer(answer)
        message = f"{self.api.cloud} takes no more calls for now (429)."
        remedy = "Try again in a minute."
        return RateLimited(message, retry_after=retry_after(answer.headers), field="provider", next=remedy)

    @staticmethod
    def _seconds_before_retry(answer: Answer, tries: int, left_s: float) -> float:
        """Return the pause that the cloud asks for; the usual one if it is down for longer than the `left_s` seconds.

        It may be back before, and an end that is not sent costs more than another call.
        """
        pause_s, requested_s = PAUSES_S[min(tries, len(PAUSES_S) - 1)], retry_after(answer.headers)
        if requested_s is None or (answer.status != TOO_MANY_REQUESTS and requested_s > left_s):
            return pause_s
        return requested_s or pause_s  # not at once, even for 0

    def _wait_for_turn(self, action: str) -> float:
        """Wait until `api.intervals_s` allow this action; return how many seconds that took. Threads take turns."""
        intervals = {name: self.api.intervals_s[name] for name in ("*", action) if self.api.intervals_s.get(name)}
        with self._turn_lock:
            now = self.timeouts.now()
            turn_at = max((now, *(self._next_turn.get(name, now) for name in intervals)))
            self._next_turn.update({name: turn_at + seconds for name, seconds in intervals.items()})
        if turn_at > now:
            send_heartbeat(turn_at - now)
            self.pause(turn_at - now)
        return self.timeouts.now() - now

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return self.api.base_url.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")

    def _connections(self) -> urllib3.PoolManager:
        if self._pool is None:
            self._pool = _pool(self.api)
        return self._pool


def is_loopback(url: str) -> bool:
    """Say whether a URL leads to this computer; False for what is no URL, which RestClient refuses."""
    try:
        return urlsplit(url).hostname in LOOPBACK
    except ValueError:
        return False


def _check_https(api: CloudApi) -> None:
    try:
        url_parts = urlsplit(api.base_url)
        is_url = url_parts.hostname is not None and url_parts.port != 0  # to read a port that is no number raises
    except ValueError:
        is_url = False
    if is_url and (url_parts.scheme == "https" or (url_parts.scheme == "http" and is_loopback(api.base_url))):
        return
    why = "is not https: the key would be readable on its way" if is_url else "is not a URL"
    message = f"The endpoint {api.base_url} of {api.cloud} {why}."
    raise InvalidRequest(message, field="endpoint", value=api.base_url, next="Write it with https://.")


def _pool(api: CloudApi) -> urllib3.PoolManager:
    try:
        import urllib3
    except ModuleNotFoundError as error:
        message = f"The provider {api.provider} needs urllib3, which is not installed."
        remedy = "Run: pip install 'cloudgpu[rest]'"
        raise MissingExtra(message, field="provider", value=api.provider, next=remedy) from error
    from urllib.request import getproxies, proxy_bypass

    url_parts = urlsplit(api.base_url)
    proxy = getproxies().get(url_parts.scheme)
    pool_options: dict[str, Any] = {"retries": urllib3.Retry(False), "maxsize": MAX_PARALLEL}  # noqa: FBT003  (urllib3's way to say: none)
    if proxy is None or is_loopback(api.base_url) or proxy_bypass(url_parts.hostname or ""):
        return urllib3.PoolManager(**pool_options)
    return urllib3.ProxyManager(proxy if "://" in proxy else f"http://{proxy}", **pool_options)


def _read_answer(reply: urllib3.BaseHTTPResponse, cloud: str) -> Answer:
    """Return the whole answer, its body as JSON, in which NaN and infinities are None: no numbers, so not known.

    Raises ProviderUnavailable for what is not JSON.
    """
    text = reply.read(MAX_ANSWER_BYTES, decode_content=True)
    headers = {name.lower(): value for name, value in reply.headers.items()}
    try:
        data = json.loads(text, parse_constant=lambda _name: None) if text.strip() else None
    except ValueError:
        if reply.status >= 400:  # noqa: PLR2004  (a plain text: the status says it)
            return Answer(reply.status, headers, text.decode("utf-8", "replace"))
        message = f"{cloud} answered with {reply.status} and something that is not JSON."
        raise ProviderUnavailable(message, field="provider", next="Try again in a minute.") from None
    return Answer(reply.status, headers, data)


def _redirect_error(status: int, action: str, api: CloudApi) -> ProviderUnavailable:
    """Return the error of a redirect, which is no answer: a page for a login in between sends one, too."""
    message = f"{api.cloud} answered {action} with a redirect ({status}), which is not followed."
    remedy = "Look at the endpoint, and for a proxy or a login page in between."
    return ProviderUnavailable(message, field="provider", value=api.provider, next=remedy)


def _read_lines(reply: urllib3.BaseHTTPResponse, is_over: Callable[[], bool]) -> Iterator[str]:
    incomplete_line = b""
    while chunk := reply.read1(4096, decode_content=True):  # what has come, where `stream` waits for all 4096 bytes
        *complete_lines, incomplete_line = (incomplete_line + chunk).split(b"\n")
        yield from (line.decode("utf-8", "replace").rstrip("\r") for line in complete_lines)
        if is_over():
            return
    if incomplete_line:
        yield incomplete_line.decode("utf-8", "replace")
