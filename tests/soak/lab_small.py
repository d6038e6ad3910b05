"""The lab for the test suite: commands in this process, clouds as `world.py` makes them up, the same judge."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from cloudgpu.cli.app import run
from cloudgpu.control.outage import opening as sessions
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import TAG_RENEW_UNTIL, State
from tests.soak.lab import ACCOUNTS, CONFIG, START, Lab
from tests.soak.lab_clock import SharedClock
from tests.soak.lab_member import KILLED, Said
from tests.soak.striking import struck
from tests.soak.world import SHOPS, Sim

UP = "--no-wait --yes --template bare"
EVER = datetime(2000, 1, 1, tzinfo=START.tzinfo), datetime(9000, 1, 1, tzinfo=START.tzinfo)


class Killed(BaseException):
    """The command's process is gone."""


@dataclass
class Numbered(Sim):
    """A made-up AWS that is the account of this number, whatever it is called."""

    number: str = ""

    def identity(self, region: str | None = None) -> AccountIdentity:
        return AccountIdentity("aws account", self.number, f"AWS account {self.number}")


class SimCloud:
    """A made-up account of AWS with this number."""

    def __init__(self, number: str, clock: SharedClock, seed: int) -> None:
        self.number, self._clock = number, clock
        self.sim = Numbered(SHOPS[0], "aws", clock.now, Random(seed), lambda: None, number=number)

    def ask(self, what: str, *words: Any) -> Any:
        return getattr(self, what)(*words)

    def machines(self) -> list[dict[str, Any]]:
        self.sim.settle()
        return [
            {"id": box.id, "tags": box.tags, "state": box.state.value, "log": [(box.launched.timestamp(), "pending")]}
            for box in self.sim.boxes.values()
        ]

    def cost(self, machine: Any, until: float) -> Fraction:
        now = datetime.fromtimestamp(until, START.tzinfo)
        entries = (one for one in self.sim.book if one.owner == machine["tags"]["cloudgpu-id"] and one.begin <= now)
        cut = (replace(one, end=min(one.end or now, now)) for one in entries)
        return sum((self.sim.cost(one, now, *EVER) for one in cut), Fraction(0)) * 10**9

    def ahead(self, machine: Any, now: float, until: float) -> Fraction:
        """Return what it costs at least until then, if it runs on."""
        if machine["state"] != "running" or until <= now:
            return Fraction(0)
        _, usd = SHOPS[0].types[self.sim.boxes[machine["id"]].item.instance_type]
        return Fraction(until - now) * Fraction(usd) / 3600 * 10**9

    def due(self) -> float | None:
        living = [box for box in self.sim.boxes.values() if box.state is not State.TERMINATED]
        return min((float(box.tags[TAG_RENEW_UNTIL]) for box in living), default=None)

    def settle(self) -> None:
        self.sim.settle()

    def shut_down(self, id_: str) -> None:
        self.sim.shut_down_inside(self.sim.boxes[id_])

    def interactive(self, id_: str) -> None:
        self.sim.interactive(self.sim.boxes[id_])


class Person:
    """A member whose commands run in this process."""

    def __init__(self, name: str, home: Path, cloud: SimCloud, clock: SharedClock, url: str) -> None:
        self.name, self.home, self.account, self.accounts = name, home, cloud.number, (cloud.number,)
        self.local, self.hosts = "", dict[str, str]()
        self._cloud, self._clock = cloud, clock
        home.mkdir()
        (home / "config.toml").write_text(CONFIG.format(owner=name))
        self.environ = {"CLOUDGPU_LEDGER": url, "CLOUDGPU_HOME": os.fspath(home), "USER": name}

    def __call__(self, words: str, *, strike: int = 0) -> Said:
        out, err, left = io.StringIO(), io.StringIO(), [strike]

        def struck_here() -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        said = redirect_stdout(out), redirect_stderr(err)
        with mock.patch.dict(os.environ, self.environ), self._opening(struck_here), said[0], said[1]:
            try:
                code = run(words.split())
            except Killed:
                code = KILLED
        return Said(code, out.getvalue(), err.getvalue())

    @contextmanager
    def _opening(self, strike: Any) -> Iterator[None]:
        made = []

        def opened(*args: Any, real: Any = sessions.open_session, **more: Any) -> Any:
            found = real(*args, **{**more, "clock": self._clock.now})
            found.pause = self._clock.advance
            found._providers["aws"] = self._cloud.sim
            made.append(found)
            return struck(found, strike)

        try:
            with mock.patch.object(sessions, "open_session", opened):
                yield
        finally:
            for session in made:
                session.ledger.close()


def small(seed: int, people: str, place: Path, url: str, accounts: tuple[str, ...] = ACCOUNTS) -> Lab:
    """Return a lab of these people on the ledger at `url`; every second one has the other account."""
    clock = SharedClock(place / "clock", START)
    clouds = [SimCloud(number, clock, seed + place_) for place_, number in enumerate(accounts)]
    members = [
        Person(name, place / name, clouds[count % len(clouds)], clock, url) for count, name in enumerate(people.split())
    ]
    return Lab(seed, clouds, members, clock, place, url, up=UP)
