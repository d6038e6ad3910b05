"""Sends one message to one receiver through apprise, within a set time, without a word of its address anywhere."""

from __future__ import annotations

import logging
import os
import platform
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from cloudgpu.config.alerts.alerts import DESKTOP
from cloudgpu.errors import MissingExtra

if TYPE_CHECKING:
    from cloudgpu.config.alerts.template import Attached, Message

WAIT_S = (
    30.0  # a receiver's whole time; apprise itself waits 4 seconds for a connection and for each answer, 15 for mail
)
_THREAD = "cloudgpu-alert"
_LOGGERS = ("apprise", "urllib3.connectionpool", "urllib3.util.retry", "urllib3.connection", "requests", "asyncio")
_NO_FILES = ("answered 400", "answered 413", "answered 415", "answered 422")  # perhaps to the file, not to the text
_DESKTOPS = {"Darwin": ("macosx://",), "Linux": ("dbus://", "gnome://")}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt at a receiver ended; `why` is None for one that took the message."""

    receiver: str
    why: str | None


@lru_cache(maxsize=64)
def label_of(address: str) -> str:
    """Return what the ledger and the screen call a receiver: its scheme and six digits, the same on every computer.

    The digits are 24 bits of scrypt: too few, and too slow to try, to find a password again.
    """
    if address == DESKTOP:
        return f"{DESKTOP}-{platform.node().split('.')[0].lower()}"  # this one's screen, not a colleague's
    from hashlib import scrypt

    digits = scrypt(address.encode(), salt=b"cloudgpu receiver", n=2**13, r=8, p=1, dklen=3).hex()
    return f"{address.partition('://')[0].lower()}-{digits}"


def load() -> Any:
    """Return apprise; raise MissingExtra where it is not installed."""
    try:
        import apprise
    except ModuleNotFoundError as error:
        message = f"Alerts are sent by {error.name}, which is not installed."
        raise MissingExtra(message, field="alerts", value=None, next="Run: pip install 'cloudgpu[alerts]'") from error
    return apprise


def send(messages: Iterable[tuple[str, Message]], *, wait_s: float = WAIT_S) -> tuple[Outcome, ...]:
    """Send each address its message, side by side, and return how each attempt ended, in order.

    One attempt each; whoever refuses a file is told at once without it. One that has not ended within `wait_s` seconds
    counts as failed and is left to itself: it may still arrive, so what is sent again later can come twice. A file lies
    in a directory of its own meanwhile, which nobody else may read. Raises MissingExtra.
    """
    apprise = load()
    pairs = list(messages)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_EAR)  # once: a second time changes nothing
    with _files(one.attached for _, one in pairs if one.attached is not None) as places:
        outcomes = _side_by_side([partial(_attempt, apprise, *pair, places) for pair in pairs], wait_s)
    late = f"did not answer within {wait_s:g} seconds"
    answers = (late if outcome is _NEVER else outcome for outcome in outcomes)
    return tuple(Outcome(label_of(address), why) for (address, _), why in zip(pairs, answers, strict=True))


def within(seconds: float, call: Callable[[], str | None]) -> str | None:
    """Return what `call` returns, or that it `did not answer`; a call that hangs is left to itself."""
    (outcome,) = _side_by_side([call], seconds)
    return f"did not answer within {seconds:g} seconds" if outcome is _NEVER else outcome


_NEVER: Any = object()


def _side_by_side(calls: list[Callable[[], str | None]], wait_s: float) -> list[Any]:
    """Run the calls in threads that nobody has to wait for at the end of the process."""
    found: list[Any] = [_NEVER] * len(calls)

    def run(number: int) -> None:
        found[number] = calls[number]()

    threads = [
        threading.Thread(target=run, args=(number,), name=f"{_THREAD}-{number}", daemon=True)
        for number in range(len(calls))
    ]
    until = time.monotonic() + wait_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return list(found)


@contextmanager
def _files(attached: Iterable[Attached]) -> Iterator[dict[Attached, Path]]:
    """Yield where each file lies while it is sent: many services of apprise read it from disk alone."""
    wanted = dict.fromkeys(attached)
    if not wanted:
        yield {}
        return
    with TemporaryDirectory(prefix="cloudgpu-") as directory:  # 0700, as it makes them
        directories = {one: Path(directory) / f"{number}" for number, one in enumerate(wanted)}
        for one, path in directories.items():
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(one.content)
        yield directories


def _attempt(apprise: Any, address: str, message: Message, places: dict[Attached, Path]) -> str | None:
    """Return why the receiver did not take it, in words that hold nothing of its address; None when it did."""
    heard = _Heard()
    _HEARD.set(heard)  # for this thread, which ends with the attempt
    try:
        if address == DESKTOP:
            return _to_desktop(apprise, message)
        receiver = _receiver(apprise, address)
        if receiver is None:
            return "is not an address that apprise knows or can use here"
        if message.attached is not None and receiver.attachment_support:
            if _notified(apprise, receiver, message, message.body, places[message.attached]):
                return None
            if heard.why not in _NO_FILES:
                return heard.why
        return None if _notified(apprise, receiver, message, _text_for(receiver, message)) else heard.why
    except Exception as error:  # noqa: BLE001  (130 services are behind it; their words may hold the address)
        return f"failed ({type(error).__name__})"


def _receiver(apprise: Any, address: str) -> Any:
    asset = apprise.AppriseAsset(
        app_id="cloudgpu",
        app_desc="cloudgpu alerts",
        app_url="",
        image_url_mask="",  # nobody's screen fetches an icon from elsewhere for it
        image_url_logo="",
        secure_logging=True,
        storage_mode=apprise.PersistentStoreMode.MEMORY,
    )
    receiver = apprise.Apprise.instantiate(address, asset=asset)
    if receiver is not None and "overflow=" not in address:
        receiver.overflow_mode = apprise.OverflowMode.SPLIT  # a service that refuses long texts would never take it
    return receiver


def _text_for(receiver: Any, message: Message) -> str:
    """Return the text for a receiver that gets no file: all that would be in it, where one message holds that."""
    if message.attached is None:
        return message.body
    whole = message.attached.whole
    return whole if len(message.subject) + len(whole) < receiver.body_maxlen else message.attached.instead


def _notified(apprise: Any, receiver: Any, message: Message, body: str, file: Path | None = None) -> bool:
    """Say whether it was taken. Not through `Apprise.notify`: its threads would keep the process from ending."""
    default_type = apprise.NotifyType.WARNING if message.attached is None else apprise.NotifyType.INFO
    kind = apprise.NotifyType.FAILURE if message.urgent else default_type
    words = {"body": body, "title": message.subject, "notify_type": kind, "body_format": apprise.NotifyFormat.TEXT}
    if file is None or message.attached is None:
        return bool(receiver.notify(**words))
    query = urlencode({"name": message.attached.name, "mime": message.attached.type})
    attach = apprise.AppriseAttachment(f"file://{quote(str(file))}?{query}", asset=receiver.asset)
    return bool(receiver.notify(**words, attach=attach))


def _to_desktop(apprise: Any, message: Message) -> str | None:
    """Show it on this computer's screen, by apprise where it can, else by notify-send."""
    text = message.body if message.attached is None else message.attached.instead
    for address in _DESKTOPS.get(platform.system(), ()):
        receiver = _receiver(apprise, address)
        if receiver is not None and _notified(apprise, receiver, message, text):
            return None
    program = shutil.which("notify-send")
    if program is None:
        return "cannot be used here: there is neither a desktop that apprise knows nor notify-send"
    urgency = "critical" if message.urgent else "normal"
    words = [program, f"--urgency={urgency}", "--app-name=cloudgpu", "--", message.subject, text]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S, check=False)  # noqa: S603
    return None if done.returncode == 0 else f"notify-send ended with {done.returncode}"


@dataclass(slots=True)
class _Heard:
    """What apprise and what it stands on said during one attempt, as far as that cannot hold a secret."""

    why: str = "did not take it"

    def note(self, message: str) -> None:
        """Keep the status or the kind of the fault, in our own words."""
        status = re.search(r"\berror[=:] ?(\d{3})\b", message)
        if status:
            self.why = f"answered {status[1]}"
        elif re.search(r"\bconnect|\btimed? ?out|refused|SMTP|socket", message, re.IGNORECASE):
            self.why = "could not be reached, or did not answer"


_HEARD: ContextVar[_Heard | None] = ContextVar("cloudgpu_alert_attempt", default=None)


class _Ear(logging.Filter):
    """Keeps to itself what is said during an attempt, whatever its level: addresses are in it. Others' records pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        heard = _HEARD.get()
        if heard is not None and record.levelno >= logging.WARNING:
            heard.note(record.getMessage())
        return heard is None


_EAR = _Ear()
