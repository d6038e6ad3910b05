"""How long the first tunnel waits for a machine of a cloud that is still being set up."""

from __future__ import annotations

from datetime import timedelta

from cloudgpu.access.jupyter.client import NotReadyYet
from cloudgpu.control.access.jupyter import SETUP_TIMEOUT, retry_during_setup
from cloudgpu.core.model.facts import RecordedIdentity

FAULT = NotReadyYet("otter has no cloudgpu agent, or not yet.")


def test_a_machine_of_a_cloud_is_waited_for_until_it_should_be_set_up(lab):
    row = lab.up(name="otter").machine
    go_on = retry_during_setup(lab.session, row)
    begun, tries = lab.clock(), 0
    lab.said.clear()
    while go_on(FAULT):
        tries += 1
    assert tries > 100
    assert SETUP_TIMEOUT - timedelta(minutes=1) < lab.clock() - begun <= SETUP_TIMEOUT + timedelta(seconds=5)
    assert lab.said == ["otter: still being set up (otter has no cloudgpu agent, or not yet); waiting for Jupyter"]


def test_a_host_that_says_it_is_installing_jupyterlab_is_waited_for_however_long_ago_it_was_launched(lab):
    row = lab.up(name="otter").machine
    here = RecordedIdentity.of(lab.session.provider("local").identity().to_json())
    own = row._replace(account="local", provider="local", identity=here)
    lab.clock.advance(2 * SETUP_TIMEOUT.total_seconds())
    installing = NotReadyYet("There is no JupyterLab on otter yet: it is being installed.")
    installing.is_installing = True
    go_on, begun = retry_during_setup(lab.session, own), lab.clock()
    while go_on(installing):
        pass
    assert SETUP_TIMEOUT - timedelta(minutes=1) < lab.clock() - begun <= SETUP_TIMEOUT + timedelta(seconds=5)


def test_a_machine_that_is_here_from_its_first_second_is_not_waited_for(lab):
    row = lab.up(name="otter").machine
    here = RecordedIdentity.of(lab.session.provider("local").identity().to_json())
    local = row._replace(account="local", provider="local", identity=here)
    assert not retry_during_setup(lab.session, local)(FAULT)
    assert not retry_during_setup(lab.session, row._replace(launched_at=None))(FAULT)
