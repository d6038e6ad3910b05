from __future__ import annotations

import pytest

from cloudgpu.access.ssh.connection import connect
from tests.access.sshserver import Server


@pytest.fixture
def server(tmp_path):
    made = Server(tmp_path / "machine")
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "connections").touch()
    yield made.start().pin()
    made.kill()


@pytest.fixture
def connection(server):
    with connect(server.target, timeout=10) as made:
        yield made


def pytest_collection_modifyitems(items):
    for item in items:  # what goes wrong in a thread would otherwise be a warning only
        item.add_marker(pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"))
