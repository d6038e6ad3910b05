"""A fake cloud like Azure: what was shut down from inside is billed on, until it is stopped from outside."""

from __future__ import annotations

from dataclasses import replace

from cloudgpu.core.model.instances import State
from cloudgpu.testing import FakeProvider


class AllocatedProvider(FakeProvider):
    """The fake cloud, but for that."""

    def _shown(self, machine):
        seen = super()._shown(machine)
        return replace(seen, billed=True) if self._is_allocated(seen) else seen

    def _stop(self, cloud, id):  # noqa: A002
        machine = self._living(cloud, id)
        if self._is_allocated(super()._shown(machine)):
            self._set(cloud, machine, requested=State.STOPPED)
        super()._stop(cloud, id)

    def _is_allocated(self, seen):
        return seen.state is State.STOPPED and seen.reason == "died"
