from __future__ import annotations

import errno
import hashlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.access.ssh.target import LoginRefused
from cloudgpu.access.tunnel.tunnel import Tunnel, TunnelChange, listen
from cloudgpu.errors import Frozen, InstanceNotFound, InvalidRequest, Unreachable, WrongHostKey
from tests.access.remote import digest_after_end, echo, get, listening, web
from tests.access.sshserver import wait_for

MEGABYTE = bytes(range(256)) * 4096


@pytest.fixture
def events():
    return []


@pytest.fixture
def tunnelled(server, events):
    """Return a function that opens a tunnel to a remote port; all are closed at the end."""
    opened = []

    def through(remote_port, **more):
        source = more.pop("source", lambda: server.target)
        tunnel = Tunnel(source, remote_port, first_port=0, on_event=events.append, **more)
        opened.append(tunnel)
        tunnel.open()
        return tunnel

    yield through
    for tunnel in opened:
        tunnel.close()


def kinds(events):
    return [str(event.kind) for event in events if event.kind is not TunnelChange.TRIED]


def knock(tunnel):
    return socket.create_connection(("127.0.0.1", tunnel.port), 10)


def open_files():
    return len(list(Path("/dev/fd").iterdir()))


def stood_still(count, seconds=0.5):
    """Return what `count()` says once it has not changed for that long."""
    last, since = count(), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(0.02)
        if count() != last:
            last, since = count(), time.monotonic()
    return last


def happened(events, kind):
    return lambda: any(event.kind is kind for event in events)


def test_a_request_is_answered_through_the_tunnel(tunnelled, events):
    with web() as remote:
        assert get(tunnelled(remote).port, "here") == "answer to /here"
    assert kinds(events) == ["connected"]


def test_fifty_connections_at_once_each_get_their_own_bytes_and_none_ends_the_others(tunnelled, events):
    def talk(port, number):
        said = bytes([number]) * 300_000
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            threading.Thread(target=lambda: (client.sendall(said), client.shutdown(socket.SHUT_WR))).start()
            heard = b""
            while data := client.recv(65536):
                heard += data
        return heard == said

    with listening(echo) as remote:
        port = tunnelled(remote).port
        with ThreadPoolExecutor(50) as pool:
            assert all(pool.map(lambda number: talk(port, number % 50), range(200)))
    assert kinds(events) == ["connected"]


@pytest.mark.soak
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_hundred_megabytes_arrive_whole(tunnelled, direction):
    wanted = hashlib.sha256(MEGABYTE * 100).hexdigest()

    def send_all(connection):
        for _ in range(100):
            connection.sendall(MEGABYTE)

    with listening(digest_after_end if direction == "up" else send_all) as remote:
        port = tunnelled(remote).port
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            if direction == "up":
                send_all(client)
                client.shutdown(socket.SHUT_WR)
                assert client.recv(200).decode() == f"{len(MEGABYTE) * 100} {wanted}"
            else:
                heard = hashlib.sha256()
                while data := client.recv(1 << 18):
                    heard.update(data)
                assert heard.hexdigest() == wanted


def test_one_side_may_end_while_the_other_goes_on(tunnelled):
    told = threading.Event()

    def ends_first_then_listens(connection):
        connection.sendall(b"bye")
        connection.shutdown(socket.SHUT_WR)
        if connection.recv(100) == b"and this came later":
            told.set()

    with listening(ends_first_then_listens) as remote, knock(tunnelled(remote)) as client:
        assert client.recv(100) == b"bye"
        assert client.recv(100) == b""
        client.sendall(b"and this came later")
        assert told.wait(10)


def test_a_slow_reader_slows_the_sender_down_and_nothing_is_collected(tunnelled):
    sent = [0]

    def send_forever(connection):
        while True:
            sent[0] += connection.send(MEGABYTE)

    with listening(send_forever) as remote, knock(tunnelled(remote)):
        wait_for(lambda: sent[0] > 0)
        assert stood_still(lambda: sent[0]) < 64 * len(MEGABYTE)


def test_requests_that_begin_during_an_outage_wait_and_none_fails(server, tunnelled, events):
    with web() as remote:
        port = tunnelled(remote).port
        server.kill()
        wait_for(happened(events, TunnelChange.LOST))
        with ThreadPoolExecutor(20) as pool:
            answers = [pool.submit(get, port, number) for number in range(20)]
            wait_for(lambda: sum(one.running() for one in answers) == 20)
            server.start()
            assert [one.result() for one in answers] == [f"answer to /{number}" for number in range(20)]
    assert kinds(events) == ["connected", "lost", "reconnected"]


def test_requests_sent_right_after_the_kill_are_answered_too(server, tunnelled):
    with web() as remote:
        port = tunnelled(remote).port
        for turn in range(3):
            server.kill()
            with ThreadPoolExecutor(5) as pool:
                answers = [pool.submit(get, port, f"{turn}-{number}") for number in range(5)]
                server.start()
                assert all(one.result() == f"answer to /{turn}-{number}" for number, one in enumerate(answers))


def test_half_an_answer_is_an_error_and_not_an_end_of_data(server, tunnelled):
    def never_done(connection):
        connection.sendall(b"the first half")
        connection.recv(1)

    with listening(never_done) as remote, knock(tunnelled(remote)) as client:
        assert client.recv(100) == b"the first half"
        server.kill()
        with pytest.raises(ConnectionResetError):
            client.recv(100)


def test_a_frozen_server_is_noticed_within_seconds_and_left_for_the_next_connection(server, tunnelled, events):
    with web() as remote:
        port = tunnelled(remote, ping_after_s=0.2, answer_timeout_s=0.8, timeout=2).port
        assert get(port, "before") == "answer to /before"
        server.freeze()
        froze = time.monotonic()
        wait_for(happened(events, TunnelChange.LOST))
        assert time.monotonic() - froze < 4
        assert isinstance(events[-1].error, Frozen) or isinstance(events[1].error, Frozen)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(get, port, "during")
            server.thaw()
            assert answer.result() == "answer to /during"


@pytest.mark.soak
def test_a_busy_line_is_not_taken_for_a_frozen_one(tunnelled, events):
    stop = threading.Event()

    def send_on(connection):
        while not stop.is_set():
            connection.sendall(MEGABYTE)

    with listening(send_on) as remote, knock(tunnelled(remote, ping_after_s=0.1, answer_timeout_s=0.3)) as client:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            client.recv(65536)
        stop.set()
    assert kinds(events) == ["connected"]


def test_another_host_key_after_a_restart_ends_the_tunnel_and_is_never_tried_again(server, tunnelled, events):
    with web() as remote:
        tunnel = tunnelled(remote, outage_wait_s=30)
        server.kill()
        server.host_key = new_host_key()
        wait_for(happened(events, TunnelChange.LOST))
        with knock(tunnel) as waiting:
            before = server.connections
            server.start()
            assert isinstance(tunnel.wait(10), WrongHostKey)
            with pytest.raises(ConnectionResetError):
                waiting.recv(1)
    with pytest.raises(AssertionError):
        wait_for(lambda: server.connections > before + 1, 1.5)
    assert server.connections == before + 1
    assert kinds(events) == ["connected", "lost", "ended"]
    wait_for(lambda: not _answers(tunnel.port))


def test_a_refused_login_after_a_restart_ends_the_tunnel(server, tunnelled, tmp_path):
    with web() as remote:
        tunnel = tunnelled(remote)
        server.kill()
        server.start(authorized=client_key(tmp_path / "somebody else").public_line)
        assert isinstance(tunnel.wait(10), LoginRefused)


def test_a_machine_that_is_gone_ends_the_tunnel_with_that_word(server, tunnelled):
    gone = threading.Event()

    def source():
        if gone.is_set():
            raise InstanceNotFound("box ended.", field="name", value="box")
        return server.target

    with web() as remote:
        tunnel = tunnelled(remote, source=source)
        gone.set()
        server.kill()
        assert isinstance(tunnel.wait(10), InstanceNotFound)


def test_after_a_reconnect_the_remote_port_is_asked_again(server, tunnelled, events):
    def says(word):
        return listening(lambda connection: connection.sendall(word))

    with says(b"old") as old, says(b"new") as new:
        tunnel = tunnelled(lambda connection: new if happened(events, TunnelChange.LOST)() else old)
        with knock(tunnel) as client:
            assert client.recv(10) == b"old"
        server.kill()
        server.start()
        wait_for(happened(events, TunnelChange.RECONNECTED))
        with knock(tunnel) as client:
            assert client.recv(10) == b"new"


def test_where_nobody_listens_any_more_the_port_is_asked_again(tunnelled):
    ports = []
    with web() as first:
        ports.append(first)
        tunnel = tunnelled(lambda connection: ports[-1])
        assert get(tunnel.port, "a") == "answer to /a"
    with web() as second:
        ports.append(second)
        assert get(tunnel.port, "b") == "answer to /b"


def test_a_port_found_on_a_lost_connection_does_not_replace_the_next_connection(server, tunnelled, events):
    """The connection is lost and made again while a client's look for the port still runs on the old one."""
    with web() as closed:
        pass
    looks = []

    def remote_port(connection):
        looks.append(connection)
        if len(looks) == 1:
            return closed
        if len(looks) == 2:
            server.kill()
            server.start()
            wait_for(happened(events, TunnelChange.RECONNECTED))
        return alive

    with web() as alive:
        tunnel = tunnelled(remote_port)
        assert get(tunnel.port, "a") == "answer to /a"
        assert get(tunnel.port, "b") == "answer to /b"
    assert [look is looks[0] for look in looks] == [True, True, False]


def test_a_client_without_a_thread_is_refused_and_the_next_one_is_served(tunnelled, monkeypatch):
    with web() as remote:
        tunnel = tunnelled(remote)
        start = threading.Thread.start

        def refuse_once(thread):
            if thread.name == "tunnel-client":
                monkeypatch.setattr(threading.Thread, "start", start)
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse_once)
        with knock(tunnel) as client:
            assert client.recv(1) == b""
        assert get(tunnel.port, "a") == "answer to /a"


def test_while_the_system_has_no_memory_for_a_client_the_tunnel_does_not_spin(tunnelled, monkeypatch):
    with web() as remote:
        tunnel = tunnelled(remote)
        refused_at = []

        def refuse(_listener):
            refused_at.append(time.monotonic())
            raise OSError(errno.ENOBUFS, "No buffer space available")

        with monkeypatch.context() as patched:
            patched.setattr(socket.socket, "accept", refuse)
            wait_for(lambda: len(refused_at) > 1)
        assert refused_at[1] - refused_at[0] > 0.2
        assert get(tunnel.port, "a") == "answer to /a"


def test_a_client_waits_no_longer_than_its_patience(server, tunnelled, events):
    with web() as remote:
        tunnel = tunnelled(remote, outage_wait_s=0.3)
        server.kill()
        wait_for(happened(events, TunnelChange.LOST))
        with knock(tunnel) as client, pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_taken_port_is_left_alone_and_the_next_one_used(server):
    with listen(8900) as other:
        taken = other.getsockname()[1]
        tunnel = Tunnel(lambda: server.target, 1, first_port=taken)
        with tunnel:
            assert tunnel.port != taken
            assert taken < tunnel.port <= taken + 100


def test_a_number_that_is_no_port_is_named():
    with pytest.raises(InvalidRequest) as caught:
        listen(70000)
    assert (caught.value.field, caught.value.value) == ("port", "70000")


def test_a_machine_that_does_not_answer_is_said_before_a_port_is_taken(server, events):
    server.kill()
    tunnel = Tunnel(lambda: server.target, 1, first_port=0, on_event=events.append)
    with pytest.raises(Unreachable):
        tunnel.open()
    assert (tunnel.port, events) == (0, [])


def test_nothing_is_left_after_the_end(server, tunnelled):
    def threads():
        return {thread for thread in threading.enumerate() if thread.is_alive()}

    with web() as remote:
        before, files = threads(), open_files()
        tunnel = tunnelled(remote)
        clients = [socket.create_connection(("127.0.0.1", tunnel.port), 10) for _ in range(10)]
        assert get(tunnel.port, "x") == "answer to /x"
        tunnel.close()
        for client in clients:
            client.close()
        wait_for(lambda: not [one for one in threads() - before if not one.name.startswith("Thread-")])
        wait_for(lambda: open_files() <= files)
    assert not _answers(tunnel.port)


def _answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
