"""The suite's own guards work."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import loopback_only
import pytest

from cloudgpu.config.files.user_files import find_home

pytest_plugins = ["pytester"]
CONFTEST = Path(__file__).parent / "conftest.py"


def use_our_conftest(pytester):
    text = CONFTEST.read_text()
    pytester.makeconftest(text.replace("Path(__file__).parent", f"Path({str(CONFTEST.parent)!r})"))


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A log of this test's own: what it tries on purpose is no fault of the run."""
    file = tmp_path / "network.log"
    monkeypatch.setenv("CLOUDGPU_TEST_NETWORK_LOG", str(file))
    return file


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80)])
def test_no_connection_leaves_this_machine(log, address):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as out, pytest.raises(loopback_only.NetworkBlocked):
        out.connect(address)
    assert address[0] in log.read_text()


def test_no_datagram_and_no_look_up_leaves_this_machine(log):
    with socket.socket(type=socket.SOCK_DGRAM) as out, pytest.raises(loopback_only.NetworkBlocked):
        out.sendto(b"x", ("192.0.2.1", 53))
    with pytest.raises(loopback_only.NetworkBlocked):
        socket.getaddrinfo("example.com", 443)
    with pytest.raises(loopback_only.NetworkBlocked):
        socket.gethostbyname("example.com")
    assert len(log.read_text().splitlines()) == 3


def test_children_are_guarded_too(log):
    code = "import socket; socket.create_connection(('192.0.2.1', 80))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    assert child.returncode == 1
    assert "NetworkBlocked" in child.stderr
    assert "192.0.2.1" in log.read_text()


def test_loopback_is_free(log):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
    socket.getaddrinfo("localhost", 80)
    assert not log.exists()


def test_the_home_is_not_the_users_own(own_home):
    assert os.environ["CLOUDGPU_HOME"] == str(own_home)
    assert find_home().root == own_home != find_home({}).root


SKIPPED = {
    "test_one.py": "import pytest\n@pytest.mark.skip(reason='no chromium')\ndef test_it(): pass\n",
    "test_module.py": "import pytest\npytest.importorskip('no_such_module')\n",
}


@pytest.fixture
def ran(pytester, monkeypatch):
    """Run these files with our conftest; return the result."""

    def run(files, **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        use_our_conftest(pytester)
        for name, text in files.items():
            pytester.path.joinpath(name).write_text(text)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "--continue-on-collection-errors")

    return run


def test_each_skip_fails_where_skips_are_forbidden(ran):
    result = ran(SKIPPED, CLOUDGPU_TEST_NO_SKIP="1")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines_random(["*no chromium*", "*no_such_module*"])
    assert result.ret != 0


@pytest.mark.soak
def test_skips_are_taken_elsewhere_and_a_run_that_reached_out_fails_though_every_test_passed(ran, monkeypatch):
    monkeypatch.delenv("CLOUDGPU_TEST_NETWORK_LOG")
    reaches = (
        "import socket\n"
        "def test_it():\n"
        "    try:\n"
        "        socket.getaddrinfo('example.com', 80)\n"
        "    except RuntimeError:\n"
        "        pass\n"
    )
    result = ran({**SKIPPED, "test_reaches.py": reaches}, CLOUDGPU_TEST_NO_SKIP="")
    result.assert_outcomes(passed=1, skipped=2)
    assert result.ret == 1
    result.stderr.fnmatch_lines(["*example.com*"])
