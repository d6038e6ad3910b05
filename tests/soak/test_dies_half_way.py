"""A launch whose network dies at every change that it asks of our models of Google Cloud and Azure: nothing stays.

`down` takes all that costs money, three hours later; what costs nothing (a rule, an empty group) `orphans --clean`
takes at once after it.
"""

from __future__ import annotations

import pytest

from tests.cli.test_faults_here import (
    AZURE,
    HOUR,
    azure_arm,
    azure_process,
    cloud,
    gcp,
    gcp_process,
    line,
    nothing_runs,
    server,
)
from tests.soak import crash_azure, crash_gcp
from tests.soak.crash_cloud import Watch

__all__ = ["azure_arm", "azure_process", "cloud", "gcp", "gcp_process", "line", "server"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


class Dead(Watch):
    """Answers nothing from a moment on."""

    def __call__(self, number, action, phase):
        was = self.came
        super().__call__(number, action, phase)
        return "drop" if was or self.came else None


def left(cloud, line):
    """Return what there is of a launch in the model, whether it costs or not; the door that shuts all out stays."""
    doors = line.server.resources() if cloud is AZURE else line.server.firewalls()
    return line.server.billable(), [one for one in doors if not one.startswith("cloudgpu-shut-")]


def test_a_launch_that_dies_at_any_change_is_removed_and_billed(cloud, line):
    for _ in range(2):  # the first makes a rule that stays
        line.server.on_call = watch = Watch()
        assert line(cloud.up).code == 0
        line.server.on_call = None
        assert line("down --all --yes").code == 0
    points = (crash_azure if cloud is AZURE else crash_gcp).moments(watch.actions)
    assert points
    for point in points:
        line.server.on_call = dead = Dead(point)
        died = line(cloud.up, "-o json")
        line.server.on_call = None
        assert (dead.came, died.code) == (True, 8), (point.said, died.out)
        line.server.advance(3 * HOUR)
        assert line("down --all --yes").code == 0, point.said
        nothing_runs(line)
        assert line("orphans --clean --yes").code == 0, point.said
        assert left(cloud, line) == ([], []), point.said
        assert line("cost --verify").code == 0
