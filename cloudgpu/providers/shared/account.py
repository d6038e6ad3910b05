"""What all clouds' clients have: clock, files, ledger, and the record of which account machines were launched in.

A cloud answers for a machine of another account as for one that does not exist. So the account of a launch is written
down, and whoever is told that there is no such machine compares first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cloudgpu.errors import AuthFailed, CloudgpuError
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.patience import Patience


def write_file(file: Path, text: str) -> None:
    """Write a line into a file, for this user alone, wholly or not at all. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        part.write_text(f"{text}\n", encoding="ascii")
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class AccountPins:
    """In which account each machine was launched, a file per machine.

    The others are words of the error: `kind` is what the cloud calls an account, `current_login` who asks now, with a
    verb ("the account lab is"), `former_login` what to use again ("the credentials of").
    """

    home: Path
    kind: str
    current_login: str
    former_login: str
    field: str

    def file(self, name: str) -> Path:
        """Return the file of a machine."""
        return self.home / "owners" / name

    def remember(self, name: str, account: str) -> None:
        """Write down in which account a machine was launched. Raises OSError."""
        write_file(self.file(name), account)

    def check(self, name: str, account: Callable[[], str]) -> None:
        """Raise AuthFailed where `account` is another one now than the machine's; not called for an unknown machine."""
        try:
            before = self.file(name).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return
        now = account()
        if now.lower() != before.lower():
            raise AuthFailed(
                f"{name} was launched in the {self.kind} {before}, and {self.current_login} of {now} now: whether it "
                "still runs is not known.",
                field=self.field,
                value=now,
                next=f"Use {self.former_login} {before} again, or give {now} an account of its own in config.toml.",
            )

    def forget(self, name: str) -> None:
        """Forget a machine whose end is proved in its own account."""
        self.file(name).unlink(missing_ok=True)


class CloudAccount:
    """A configured account of a cloud: its name, its clock, its files, whose ledger it serves. Asks nothing."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self.clock: Callable[[], datetime] = settings.clock
        self.pause, self.notify = settings.pause, settings.notify
        self.home = settings.home
        self.patience = Patience(settings.patience)
        self.regions_in_use = settings.regions_in_use
        self._ledger, self._ledger_now = settings.ledger, settings.current_ledger_id
        self._clock_ahead = settings.clock_ahead

    def own_time(self) -> datetime:
        """Return what this computer's clock says, by which calls are signed."""
        return self.clock() + self._clock_ahead()

    @property
    def ledger(self) -> str:
        """The id of whose timers and volumes these are; empty before the ledger's first line."""
        self._ledger = self._ledger or self._ledger_now()
        return self._ledger

    def pins(self, kind: str) -> AccountPins:
        """Return in which `kind` of account machines were launched; the account of now is called by its name here."""
        return AccountPins(self.home, kind, f"the account {self.account} is", f"the {kind}", kind)


@contextmanager
def translating(translated: Callable[[Exception], CloudgpuError | None]) -> Iterator[None]:
    """Turn what an SDK raises inside into our own error; None from `translated` lets it out as it is."""
    try:
        yield
    except CloudgpuError:
        raise
    except Exception as error:
        found = translated(error)
        if found is None:
            raise
        raise found from error
