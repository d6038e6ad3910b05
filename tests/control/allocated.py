"""A fake cloud like Azure: what was shut down from inside is billed on, until it is stopped from outside."""

from __future__ import annotations

from dataclasses import replace

from cloudgpu.core.model.instances import State
from cloudgpu.testing import FakeProvider


class AllocatedProvider(FakeProvider):
    """The fake cloud, but for that."""

    def _as_instance(self, machine):
        seen = super()._as_instance(machine)
        return replace(seen, billed=True) if self._is_allocated(seen) else seen

    def _stop(self, cloud, id):  # noqa: A002
        machine = self._find_living_machine(cloud, id)
        if self._is_allocated(super()._as_instance(machine)):
            self._update_machine(cloud, machine, requested=State.STOPPED)
        super()._stop(cloud, id)

    def _is_allocated(self, seen):
        return seen.state is State.STOPPED and seen.reason == "died"
