"""The client of clouds without an SDK, over real HTTP: what is sent again, what once, and what is said of it."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from contextlib import contextmanager

import pytest

from cloudgpu.errors import AnswerTimeout, AuthFailed, InvalidRequest, NoCapacity, ProviderUnavailable, RateLimited
from cloudgpu.providers.patience import CallTimeouts
from cloudgpu.providers.rest.client import CloudApi, NotSent, RestClient
from tests.clouds.azure.tls import authority
from tests.clouds.rest import Refusal, Reply, RestServer, Unmodelled

KEY = "sk-of-nobody-0123456789"


class Echo(RestServer):
    """A cloud that answers with what it was sent."""

    def read(self, request):
        if request.path == "/v1/moved":
            return "moved", {}
        if not request.path.startswith("/v1/"):
            raise Unmodelled(request.path)
        return request.path.removeprefix("/v1/"), {}

    def answer(self, call, request):
        if call.action == "moved":
            return Reply(302, {}, {"Location": f"{self.url}/v1/elsewhere"})
        if call.action == "page":
            return Reply(200, "<html>a login page</html>")
        if call.action == "endless":
            return Reply(200, b"x" * 100_000)
        if call.action == "nothing":
            return Reply(204)
        return Reply(200, {"body": request.body, "query": request.query, "login": request.headers["Authorization"]})

    def refusal(self, call, refusal):
        return Reply(refusal.status or 400, {"error": refusal.code, "message": refusal.message}, error=refusal.code)

    def denial(self, call):
        return Refusal("denied", "no", 401)

    def place(self, call):
        return {}


@pytest.fixture(scope="module")
def echo():
    server = Echo()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def server(echo):
    echo.reset()
    yield echo
    assert not echo.unmodelled


class Time:
    """A clock that only pauses move."""

    def __init__(self):
        self.now, self.paused = 0.0, []

    def pause(self, seconds):
        self.paused.append(seconds)
        self.now += seconds


@pytest.fixture
def time():
    return Time()


def refused(answer):
    return AuthFailed("refused") if answer.status == 401 else NoCapacity(f"{answer.status} {answer.data}")


def client(server, time, *, base=None, seconds=7.0, **more):
    login = {"Authorization": f"Bearer {KEY}"}
    place = CloudApi("Echo", "echo", base or f"{server.url}/v1", lambda: login, refused, **more)
    return RestClient(place, CallTimeouts(seconds, lambda: time.now), time.pause)


def test_a_read_is_sent_with_its_key_and_query_and_returns_the_value(server, time):
    found = client(server, time).get("/things", action="list", query={"a": "b c&d"})
    assert found == {"body": None, "query": {"a": "b c&d"}, "login": f"Bearer {KEY}"}


def test_a_change_sends_json_and_an_answer_may_be_empty(server, time):
    made = client(server, time).call("POST", "/things", action="make", body={"name": "é"})
    assert (made.status, made.data["body"]) == (200, {"name": "é"})
    assert client(server, time).call("DELETE", "/nothing", action="end").data is None


@pytest.mark.parametrize("effect", ["lose_reply", "refuse"])
def test_a_launch_is_sent_once_whatever_becomes_of_its_answer(server, time, effect):
    getattr(server.faults, effect)("things", times=5)
    with pytest.raises(AnswerTimeout) as raised:
        client(server, time).call("POST", "/things", action="launch", body={})
    assert not isinstance(raised.value, NotSent)
    assert len(server.calls) == 1
    assert not time.paused


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_no_answer_of_any_kind_sends_a_launch_again(server, time, status):
    server.faults.add("things", error="busy", status=status, times=5)
    with pytest.raises((RateLimited, NoCapacity)):
        client(server, time).call("POST", "/things", action="launch", body={})
    assert len(server.calls) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_read_is_asked_again_until_its_patience_is_spent(server, time, status):
    server.faults.add("things", error="busy", status=status, times=2)
    assert client(server, time).get("/things", action="list")["body"] is None
    assert len(server.calls) == 3
    assert time.paused == [0.5, 1.0]
    server.faults.add("things", error="busy", status=status, times=50)
    with pytest.raises((RateLimited, NoCapacity)):
        client(server, time).get("/things", action="list")
    assert len(server.calls) < 10


def test_the_wait_that_a_cloud_asks_for_is_kept_and_one_beyond_the_patience_is_said(server, time):
    server.faults.add("things", error="busy", status=429, retry_after=3)
    client(server, time).get("/things", action="list")
    assert time.paused == [3.0]
    server.faults.add("things", error="busy", status=429, retry_after=60)
    with pytest.raises(RateLimited) as raised:
        client(server, time).get("/things", action="list")
    assert raised.value.retry_after == 60.0
    assert time.paused == [3.0]


def test_the_wait_of_a_cloud_that_is_down_is_kept_where_it_is_short(server, time):
    server.faults.add("things", error="busy", status=503, retry_after=3)
    server.faults.add("things", error="busy", status=503, retry_after=60)
    client(server, time).get("/things", action="list")
    assert time.paused == [3.0, 1.0]


@pytest.mark.parametrize("status", [429, 503])
def test_a_cloud_that_asks_for_no_wait_is_not_called_without_a_pause(server, time, status):
    server.faults.add("things", error="busy", status=status, retry_after=0, times=2)
    client(server, time).get("/things", action="list")
    assert time.paused == [0.5, 1.0]


def test_a_wait_without_an_end_is_a_day(server, time):
    server.faults.add("things", error="busy", status=429, retry_after=float("inf"))
    with pytest.raises(RateLimited) as raised:
        client(server, time).get("/things", action="list")
    assert raised.value.retry_after == 86_400


def test_a_change_that_says_the_same_twice_may_be_sent_again(server, time):
    server.faults.lose_reply("things")
    client(server, time).call("DELETE", "/things", action="end", idempotent=True)
    assert len(server.calls) == 2


def test_calls_of_one_action_keep_the_interval_that_the_cloud_asks_for(server, time):
    ours = client(server, time, intervals_s={"list": 1.0, "launch": 12.0})
    for _ in range(3):
        ours.get("/things", action="list")
    ours.call("POST", "/things", action="launch", body={})
    assert time.paused == [1.0, 1.0]


def test_where_nothing_listens_nothing_was_sent(server, time):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(NotSent):
        client(server, time, base=base).call("POST", "/things", action="launch", body={})


UNREADABLE_RECORD = b"\x17\x03\x03\x00\x20" + bytes(32)  # a record of TLS that no key has encrypted


@pytest.fixture
def tls_server():
    """A server that answers a request with `.head`, then with a record that cannot be decrypted."""
    listener = socket.create_server(("127.0.0.1", 0))

    class Server:
        url, head, requests = f"https://127.0.0.1:{listener.getsockname()[1]}", b"", []

    def serve():
        raw, _ = listener.accept()
        with listener, raw, socket.socket(fileno=os.dup(raw.fileno())) as beneath:
            try:
                connection = authority()[1].wrap_socket(raw, server_side=True)
            except OSError:  # the client does not trust it
                return
            with connection:
                Server.requests.append(connection.recv(65536))
                connection.sendall(Server.head)
                beneath.sendall(UNREADABLE_RECORD)
                beneath.recv(65536)  # until the client has closed

    thread = threading.Thread(target=serve)
    thread.start()
    yield Server
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
def test_an_answer_that_cannot_be_decrypted_proves_nothing_of_what_was_sent(tls_server, time, monkeypatch, head):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority()[0]))
    tls_server.head = head
    with pytest.raises(AnswerTimeout, match="The encrypted connection to Echo broke during launch"):
        client(None, time, base=tls_server.url).call("POST", "/things", action="launch", body=None)
    assert b"POST /things" in tls_server.requests[0]


def test_a_cloud_whose_certificate_nobody_vouches_for_was_sent_nothing(tls_server, time, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    with pytest.raises(NotSent, match="does not prove who it is"):
        client(None, time, base=tls_server.url).call("POST", "/things", action="launch", body=None)
    assert not tls_server.requests


@contextmanager
def proxy(serve):
    """A proxy on loopback that serves one connection; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_one():
        with listener, listener.accept()[0] as connection:
            connection.recv(65536)
            serve(connection)

    thread = threading.Thread(target=serve_one)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("scheme", ["http://", ""])  # without one it is http, as for curl
def test_a_proxy_that_lets_nothing_through_sent_nothing_and_is_named(time, monkeypatch, scheme):
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    with proxy(lambda connection: connection.sendall(refusal)) as address:
        monkeypatch.setenv("https_proxy", scheme + address.removeprefix("http://"))
        with pytest.raises(NotSent, match="407 Proxy Authentication Required") as raised:
            client(None, time, base="https://cloud.example").call("POST", "/things", action="launch", body={})
    assert "proxy" in raised.value.next


def test_a_proxy_of_a_kind_that_cannot_be_used_sent_nothing_and_is_named(time, monkeypatch):
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:9")
    with pytest.raises(NotSent, match="unsupported scheme socks5") as raised:
        client(None, time, base="https://cloud.example").call("POST", "/things", action="launch", body={})
    assert "proxy" in raised.value.next


def test_where_no_proxy_listens_nothing_was_sent(time, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{free.getsockname()[1]}")
    with pytest.raises(NotSent, match="cannot be reached"):
        client(None, time, base="https://cloud.example").call("POST", "/things", action="launch", body={})


def test_a_proxy_that_breaks_off_after_a_call_proves_nothing_of_what_was_sent(time, monkeypatch):
    requests = []

    def break_off(connection):
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with authority()[1].wrap_socket(connection, server_side=True) as tunnel:
            requests.append(tunnel.recv(65536))

    monkeypatch.setenv("SSL_CERT_FILE", str(authority()[0]))
    with proxy(break_off) as address:
        monkeypatch.setenv("https_proxy", address)
        with pytest.raises(AnswerTimeout):
            client(None, time, base="https://localhost.").call("POST", "/things", action="launch", body=None)
    assert b"POST /things" in requests[0]


def test_a_silent_cloud_is_given_up_and_not_asked_again_at_once(server, time):
    server.faults.hang("things")
    ours = client(server, time, seconds=0.2)
    for _ in range(2):
        with pytest.raises(AnswerTimeout):
            ours.get("/things", action="list")
    assert len(server.calls) == 1
    server.faults.clear()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_redirect_is_not_followed_and_is_no_answer(server, time, method):
    with pytest.raises(ProviderUnavailable, match="302"):
        client(server, time).call(method, "/moved", action="list")
    assert [call.action for call in server.calls] == ["moved"]


def test_the_page_of_a_redirect_is_no_log(server, time):
    with pytest.raises(ProviderUnavailable, match="answered logs with a redirect"):
        list(client(server, time).lines("/moved", action="logs"))
    assert [call.action for call in server.calls] == ["moved"]


def test_what_is_not_json_is_no_answer(server, time):
    with pytest.raises(ProviderUnavailable, match="not JSON"):
        client(server, time).get("/page", action="list")


def test_an_endpoint_that_anybody_on_the_way_could_read_is_refused(server, time):
    with pytest.raises(InvalidRequest, match="not https"):
        client(server, time, base="http://192.0.2.1/v1")


@pytest.mark.parametrize("base", ["https://[", "https://cloud.example:port/v1", "https:///v1", "cloud.example"])
def test_an_endpoint_that_is_no_url_is_refused(time, base):
    with pytest.raises(InvalidRequest, match="is not a URL"):
        client(None, time, base=base)


def test_a_text_of_the_cloud_is_shown_without_the_key(server, time):
    ours = client(server, time)
    assert ours.redact(f"no such key: {KEY}\n  (Bearer {KEY})") == "no such key: ... (...)"
    assert len(ours.redact("x" * 999)) == 300


def test_lines_come_until_their_seconds_are_over(server, time):
    assert len(list(client(server, time).lines("/things", action="logs"))) == 1


def test_lines_end_with_their_seconds_though_no_line_ends(server):
    ticks = itertools.count()

    class Ticking:
        pause, now = None, property(lambda _: float(next(ticks)))

    assert list(client(server, Ticking()).lines("/endless", action="logs", seconds=3.0)) == []


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("Content-Length: 9999", b"one\ntwo\nthr"),
        ("Connection: close", b"one\ntwo\nthr"),
        ("Transfer-Encoding: chunked", b"b\r\none\ntwo\nthr\r\n"),
    ],
)
def test_lines_that_have_come_are_given_in_their_time_though_the_answer_goes_on_slowly(server, header, body):
    ticks, listener = itertools.count(), socket.create_server(("127.0.0.1", 0))

    class Ticking:
        pause, now = None, property(lambda _: float(next(ticks)))

    def serve():
        connection, _ = listener.accept()
        with listener, connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + header.encode() + b"\r\n\r\n" + body)
            connection.recv(65536)  # until the client has closed

    thread = threading.Thread(target=serve)
    thread.start()
    slow = client(server, Ticking(), base=f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert list(slow.lines("/logs", action="logs", seconds=1.0)) == ["one", "two"]
    thread.join(10)
    assert not thread.is_alive()


def test_an_interval_between_any_two_calls_is_kept_beside_that_of_an_action(server, time):
    ours = client(server, time, intervals_s={"*": 1.0, "launch": 12.0})
    for action in ("list", "launch", "list", "launch"):
        ours.call("POST", "/things", action=action, body={})
    assert time.paused == [1.0, 1.0, 11.0]


def test_a_turn_that_is_waited_for_takes_nothing_of_the_patience(server, time):
    ours = client(server, time, intervals_s={"launch": 60.0})
    for _ in range(2):
        assert ours.call("POST", "/things", action="launch", body={}).status == 200
