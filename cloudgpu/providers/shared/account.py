"""What all clouds' clients have: clock, files, ledger, and the record of which account machines were launched in.

A cloud answers for a machine of another account as for one that does not exist. So the account of a launch is written
down, and compared before "no such machine" is believed.
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
from cloudgpu.providers.patience import CallTimeouts


def write_file(file: Path, text: str) -> None:
    """Replace a file by one line of text, readable by this user alone, atomically. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial_file = file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        partial_file.write_text(f"{text}\n", encoding="ascii")
        partial_file.replace(file)
    finally:
        partial_file.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class AccountPins:
    """In which account each machine was launched: a file per machine below `home`, the provider's own directory.

    The other fields are parts of the error's text: `kind` is what the cloud calls an account, `current_login` who
    queries now, with a verb ("the account lab is"), `former_login` what to use again ("the credentials of"), `field`
    the `field` of the error.
    """

    home: Path
    kind: str
    current_login: str
    former_login: str
    field: str

    def file(self, name: str) -> Path:
        """Return the file about a machine, `name`, in which its account is written."""
        return self.home / "owners" / name

    def remember(self, name: str, account: str) -> None:
        """Write down in which account a machine was launched. Raises OSError."""
        write_file(self.file(name), account)

    def check(self, name: str, account: Callable[[], str]) -> None:
        """Raise AuthFailed where `account` returns another account than the machine was launched in.

        `account` is not called for a machine that has no file.
        """
        try:
            former = self.file(name).read_text(encoding="ascii", errors="backslashreplace").strip()
        except FileNotFoundError:
            return
        current = account()
        if current.lower() != former.lower():
            raise AuthFailed(
                f"{name} was launched in the {self.kind} {former}, and {self.current_login} of {current} now: whether "
                "it still runs is not known.",
                field=self.field,
                value=current,
                next=f"Use {self.former_login} {former} again, or give {current} an account of its own in config.toml.",
            )

    def forget(self, name: str) -> None:
        """Forget a machine whose end is proved in its own account."""
        self.file(name).unlink(missing_ok=True)


class CloudAccount:
    """A configured account of a cloud: what its client needs of the settings. Making one sends no request.

    `account` is its name in config.toml, `home` the directory of its files, `clock` the cloud's time (aware UTC),
    `pause` waits that many seconds, `notify` shows a line to the user, `timeouts` has the timeouts of calls, and
    `regions_in_use` is as in `ProviderSettings`.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self.clock: Callable[[], datetime] = settings.clock
        self.pause, self.notify = settings.pause, settings.notify
        self.home = settings.home
        self.timeouts = CallTimeouts(settings.patience)
        self.regions_in_use = settings.regions_in_use
        self._ledger, self._current_ledger_id = settings.ledger, settings.current_ledger_id
        self._clock_ahead = settings.clock_ahead

    def uncorrected_time(self) -> datetime:
        """Return the time of this computer's clock (aware UTC), by which calls are signed; `clock` is corrected."""
        return self.clock() + self._clock_ahead()

    @property
    def ledger(self) -> str:
        """The id of this home's ledger, which its timers and volumes carry; empty before the ledger's first line."""
        self._ledger = self._ledger or self._current_ledger_id()
        return self._ledger

    def pins(self, kind: str) -> AccountPins:
        """Return the pins of this account; `kind` is what the cloud calls an account: "project", say."""
        return AccountPins(self.home, kind, f"the account {self.account} is", f"the {kind}", kind)


@contextmanager
def translated_errors(translate: Callable[[Exception], CloudgpuError | None]) -> Iterator[None]:
    """Raise what `translate` makes of an SDK's exception inside, or that exception itself where it returns None."""
    try:
        yield
    except CloudgpuError:
        raise
    except Exception as error:
        own_error = translate(error)
        if own_error is None:
            raise
        raise own_error from error
