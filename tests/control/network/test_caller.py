"""This client's public address: asked of the settings' services over real HTTP, in turn, or said to be unknown."""

from __future__ import annotations

import socket

import pytest

from cloudgpu.control.network import reachability as caller
from cloudgpu.control.outage.opening import open_session
from cloudgpu.errors import InvalidRequest
from tests.address_service import AddressService


@pytest.fixture
def asked_of(tmp_path):
    def ask(*urls):
        (tmp_path / "config.toml").write_text(f"address_services = {list(urls)!r}\n")
        return caller.client_cidr(open_session({"CLOUDGPU_HOME": str(tmp_path), "USER": "ada"}))

    return ask


def test_the_first_service_that_answers_is_believed_and_no_other_asked(asked_of):
    with AddressService() as first, AddressService(b"198.51.100.4") as second:
        assert asked_of(first.url, second.url) == "203.0.113.7/32"
        assert second.asked == []


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
    with AddressService(body, status) as bad, AddressService(b"198.51.100.4") as good:
        assert asked_of(bad.url, good.url) == "198.51.100.4/32"
        assert bad.asked


def test_a_service_that_is_not_there_is_passed_over(asked_of):
    with AddressService() as gone:
        pass
    with AddressService() as good:
        assert asked_of(gone.url, good.url) == "203.0.113.7/32"


def test_a_service_that_is_silent_is_not_waited_for_long(asked_of, monkeypatch):
    monkeypatch.setattr(caller, "ADDRESS_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, AddressService() as good:
        assert asked_of(f"http://127.0.0.1:{silent.getsockname()[1]}/", good.url) == "203.0.113.7/32"


def test_a_proxy_is_not_asked_for_ssh_would_not_go_through_it(asked_of, monkeypatch):
    with AddressService(b"192.0.2.1") as proxy, AddressService() as good:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert asked_of(good.url) == "203.0.113.7/32"
        assert proxy.asked == []


def test_when_none_answers_the_way_out_is_named(asked_of):
    with AddressService(b"no") as bad, pytest.raises(InvalidRequest) as caught:
        asked_of(bad.url)
    assert (caught.value.exit_code, caught.value.field) == (2, "--ssh-from")
    assert bad.url in caught.value.message
    assert "--ssh-from" in caught.value.next
    assert "address_services" in caught.value.next


def test_without_services_nobody_is_asked(asked_of):
    with pytest.raises(InvalidRequest, match="none is configured"):
        asked_of()
