"""Fake clouds whose machines cost their electricity, by the very figures of own hosts and of this computer."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import ClassVar

from cloudgpu.providers import electricity
from cloudgpu.providers.local import power
from cloudgpu.providers.local.options import local_options
from cloudgpu.providers.ssh import translate
from cloudgpu.providers.ssh.options import Host
from cloudgpu.testing import FakeProvider


class MeteredProvider(FakeProvider):
    """The fake cloud, but for that; `own` are the settings, which a test changes."""

    own = Host("desk", "10.0.0.5", "accounts.lab.hosts[0]", usd_per_kwh=Decimal("0.5"))

    def prices(self, offers):
        return [translate.price(self.own, one.accelerators, self.clock()) for one in offers]

    def metered_price(self, item, gpu_watts, measured_for):
        drew = electricity.metered_draw(gpu_watts, measured_for, item.accelerators)
        return translate.metered_price(self.own, item.accelerators, drew, self.clock())


class DeskProvider(FakeProvider):
    """The fake cloud as one computer: its machines share one V100 and cost what those of `local` do; `own` as above."""

    own = local_options("lab", {"usd_per_kwh": 0.5})
    meanwhile: ClassVar = []  # what happens once, while a price is asked for
    samples: ClassVar = []  # what the agent of every machine has, finished and not

    def prices(self, offers):
        return [power.price(self.own, one.accelerators, self.clock()) for one in offers]

    def shared_price(self, item, share):
        while self.meanwhile:
            self.meanwhile.pop()()
        return power.shared_price(self.own, item.accelerators, share, self.clock())

    def agent_status(self, id, since):  # noqa: A002
        self.get(id)
        newer = [one for one in self.samples if one["t"] >= since]
        return json.dumps({"now": self.clock().timestamp(), "up_since": 0, "samples": newer}).encode()
