"""A cluster on the fake cloud, launched as `up --nodes` does it, under a clock that goes on by itself."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.testing import ManualClock
from tests.control.conftest import Lab


class Ticking(ManualClock):
    """Goes on by a millisecond whenever it is looked at, as a clock does: what comes after is later."""

    def __call__(self):
        """Return the present of this clock."""
        self.now += timedelta(milliseconds=1)
        return self.now


class GangLab(Lab):
    """A lab with a cluster called `train`."""

    def gang(self, nodes=4, engine="none", **more):
        """Launch a cluster, and return its rows."""
        self.up(name="train", nodes=nodes, engine=engine, **more)
        return self.session.find_all_nodes("train", "stop")

    def states(self):
        """What the cloud says of each of its machines that is there, by name, whatever the ledger says."""
        there = [one for one in self.cloud.list().instances if one.state != "terminated"]
        return {one.tags["cloudgpu-name"]: str(one.state) for one in there}


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.control.conftest.ManualClock", Ticking)
    return GangLab(tmp_path, monkeypatch)


@pytest.fixture
def gang(lab):
    """The rows of a cluster of four."""
    return lab.gang()
