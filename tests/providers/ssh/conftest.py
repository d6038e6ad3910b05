from __future__ import annotations

import pytest

from tests.providers.ssh.hosts import Lab, OwnHost


@pytest.fixture
def own(tmp_path):
    """Make hosts by name; at the end nothing may run on them that the test did not end."""
    made = []

    def host(name="bigbox", **facts):
        made.append(OwnHost(tmp_path / "hosts", name, **facts))
        made[-1].root.mkdir(exist_ok=True)
        return made[-1].start()

    yield host
    left = [process for one in made for process in one.clean_up()]
    assert not left, f"still running: {left}"


@pytest.fixture
def lab(own, tmp_path):
    """An account with one host; what is left on it is terminated."""
    lab = Lab(tmp_path, own())
    yield lab
    if lab.hosts[0].process is None:
        lab.hosts[0].start()
    for instance in lab.provider.list().instances:
        lab.provider.terminate(instance.id)
