"""The fake cloud as one that is paid in advance: what is left is read, and a test sets it."""

from __future__ import annotations

from cloudgpu.core.model.account import Credit
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.offers import Available, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.testing.fake.market import offered
from cloudgpu.testing.fake.provider import FakeProvider
from cloudgpu.testing.fake.store import Cloud

PAGE = "https://fake.example/billing"


class PrepaidFakeProvider(FakeProvider):
    """Its credit is that of the setting `credit` until `set_credit`; it says what its running machines cost an hour."""

    def credit(self) -> Credit:
        """Return what is left; nothing is taken from it as time goes by."""
        with self._call("credit") as cloud:
            left = Money(cloud.credit) if cloud.credit is not None else Money.usd(str(self.options.credit))
            return Credit(left, self.clock(), self._spends(cloud), PAGE)

    def set_credit(self, usd: str) -> None:
        """Let so much be left."""
        with self._store.open() as cloud:
            cloud.credit = Money.usd(usd).nanos

    def _spends(self, cloud: Cloud) -> Money:
        sold = {(item.instance_type, item.zone, item.market): item for item in _all(self.account)}
        running = [one for one in cloud.machines.values() if self._state(one) in (State.PENDING, State.RUNNING)]
        prices = [self._price(cloud, sold[one.instance_type, one.zone, one.market]) for one in running]
        return Money(sum(price.per_hour.nanos for price in prices if price is not None))


def _all(account: str) -> list[Available]:
    return list(offered(account, Requirements()))
