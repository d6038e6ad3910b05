"""This client's public address: asked of the settings' services over real HTTP, in turn, or said to be unknown."""

from __future__ import annotations

import contextlib
import http.server
import threading

import pytest

from cloudgpu.control import caller
from cloudgpu.control.session import open_session
from cloudgpu.errors import InvalidRequest


@contextlib.contextmanager
def service(body=b"203.0.113.7\n", status=200):
    """Yield the URL of a service on loopback that answers so, and the list of who asked it."""
    asked = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def asked_of(tmp_path):
    def ask(*urls):
        (tmp_path / "config.toml").write_text(f"address_services = {list(urls)!r}\n")
        return caller.caller_cidr(open_session({"CLOUDGPU_HOME": str(tmp_path), "USER": "ada"}))

    return ask


def test_the_first_service_that_answers_is_believed_and_no_other_asked(asked_of):
    with service() as (first, _), service(b"198.51.100.4") as (second, asked):
        assert asked_of(first, second) == "203.0.113.7/32"
        assert asked == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"<html>Log in to the hotel's network</html>", 200),
        (b"2001:db8::7", 200),
        (b"203.0.113.7/32", 200),
        (b"203.0.113.7, 10.0.0.1", 200),
        (b"203.0.113.7" + b" " * 500 + b"and more", 200),
        ("203.0.113.7\u00a0".encode(), 200),
        (b"203.0.113.7", 500),
        (b"203.0.113.7", 404),
    ],
)
def test_what_is_no_address_is_passed_over(asked_of, body, status):
    with service(body, status) as (bad, asked), service(b"198.51.100.4") as (good, _):
        assert asked_of(bad, good) == "198.51.100.4/32"
        assert asked


def test_a_service_that_is_not_there_is_passed_over(asked_of):
    with service() as (gone, _):
        pass
    with service() as (good, _):
        assert asked_of(gone, good) == "203.0.113.7/32"


def test_a_service_that_is_silent_is_not_waited_for_long(asked_of, monkeypatch):
    import socket

    monkeypatch.setattr(caller, "WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, service() as (good, _):
        assert asked_of(f"http://127.0.0.1:{silent.getsockname()[1]}/", good) == "203.0.113.7/32"


def test_a_proxy_is_not_asked_for_ssh_would_not_go_through_it(asked_of, monkeypatch):
    with service(b"192.0.2.1") as (proxy, asked), service() as (good, _):
        monkeypatch.setenv("http_proxy", proxy)
        assert asked_of(good) == "203.0.113.7/32"
        assert asked == []


def test_when_none_answers_the_way_out_is_named(asked_of):
    with service(b"no") as (bad, _), pytest.raises(InvalidRequest) as caught:
        asked_of(bad)
    assert (caught.value.exit_code, caught.value.field) == (2, "--ssh-from")
    assert bad in caught.value.message
    assert "--ssh-from" in caught.value.next
    assert "address_services" in caught.value.next


def test_without_services_nobody_is_asked(asked_of):
    with pytest.raises(InvalidRequest, match="none is configured"):
        asked_of()
