"""Sends messages to receivers through apprise, within a set time. No result or log has a part of their addresses."""

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
    from cloudgpu.config.alerts.template import AttachedFile, Message

WAIT_S = (
    30.0  # a receiver's whole time; apprise itself waits 4 seconds for a connection and for each answer, 15 for mail
)
_THREAD_PREFIX = "cloudgpu-alert"
# Their records may have addresses, which are secret.
_LOGGERS = ("apprise", "urllib3.connectionpool", "urllib3.util.retry", "urllib3.connection", "requests", "asyncio")
_ATTACHMENT_REFUSALS = ("answered 400", "answered 413", "answered 415", "answered 422")  # perhaps for the attached file
_DESKTOP_ADDRESSES = {"Darwin": ("macosx://",), "Linux": ("dbus://", "gnome://")}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt to send to a receiver (its label) ended; `why` it failed, None if it accepted the message."""

    receiver: str
    why: str | None


@lru_cache(maxsize=64)
def label_of(address: str) -> str:
    """Return what the ledger and the screen call a receiver: its scheme and six digits of a hash of its address.

    That is the same on every computer, except for `desktop`, which has the computer's name. The digits are 24 bits of
    scrypt: too few, and too slow to compute, to find a password in the address by trying.
    """
    if address == DESKTOP:
        return f"{DESKTOP}-{platform.node().split('.')[0].lower()}"  # the screen of this computer
    from hashlib import scrypt

    digits = scrypt(address.encode(), salt=b"cloudgpu receiver", n=2**13, r=8, p=1, dklen=3).hex()
    return f"{address.partition('://')[0].lower()}-{digits}"


def load_apprise() -> Any:
    """Return apprise; raise MissingExtra where it is not installed."""
    try:
        import apprise
    except ModuleNotFoundError as error:
        message = f"Alerts are sent by {error.name}, which is not installed."
        raise MissingExtra(message, field="alerts", value=None, next="Run: pip install 'cloudgpu[alerts]'") from error
    return apprise


def send(messages: Iterable[tuple[str, Message]], *, wait_s: float = WAIT_S) -> tuple[Outcome, ...]:
    """Send each address its message, in parallel, and return how each attempt ended, in order. Raises MissingExtra.

    If a receiver refuses the attached file, the text is sent without it at once. An attempt that has not ended within
    `wait_s` seconds counts as failed. It is not stopped: the message may still arrive, and arrive twice if it is sent
    again later. Attached files are in a private directory meanwhile.
    """
    apprise = load_apprise()
    address_messages = list(messages)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_LOG_FILTER)  # adding it again changes nothing
    with _files(message.attached for _, message in address_messages if message.attached is not None) as paths:
        failures = _run_parallel([partial(_attempt, apprise, *pair, paths) for pair in address_messages], wait_s)
    return tuple(Outcome(label_of(address), why) for (address, _), why in zip(address_messages, failures, strict=True))


def call_within(seconds: float, call: Callable[[], str | None]) -> str | None:
    """Return what `call` returns, or that it `did not answer` within the time; it is not stopped then."""
    return _run_parallel([call], seconds)[0]


def _run_parallel(calls: list[Callable[[], str | None]], wait_s: float) -> list[str | None]:
    """Return what each call returns within `wait_s`, else a text; threads that hang do not keep the process alive."""
    results: list[str | None] = [f"did not answer within {wait_s:g} seconds"] * len(calls)

    def run(i: int) -> None:
        try:
            results[i] = calls[i]()
        except Exception as error:  # noqa: BLE001  (apprise has 130 services; their messages may have the address)
            results[i] = f"failed ({type(error).__name__})"

    threads = [
        threading.Thread(target=run, args=(i,), name=f"{_THREAD_PREFIX}-{i}", daemon=True) for i in range(len(calls))
    ]
    deadline = time.monotonic() + wait_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return list(results)


@contextmanager
def _files(attached: Iterable[AttachedFile]) -> Iterator[dict[AttachedFile, Path]]:
    """Yield the path of each attached file while it is sent: many services of apprise only read files from disk."""
    files = dict.fromkeys(attached)
    if not files:
        yield {}
        return
    with TemporaryDirectory(prefix="cloudgpu-") as directory:  # created with mode 0700
        paths = {file: Path(directory) / f"{i}" for i, file in enumerate(files)}
        for file, path in paths.items():
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(file.content)
        yield paths


def _attempt(apprise: Any, address: str, message: Message, paths: dict[AttachedFile, Path]) -> str | None:
    """Send once; return why the receiver did not accept it, without a part of its address, or None."""
    log = _AttemptLog()
    _ATTEMPT_LOG.set(log)  # for this thread, which ends with the attempt
    if address == DESKTOP:
        return _to_desktop(apprise, message)
    receiver = _receiver(apprise, address)
    if receiver is None:
        return "is not an address that apprise knows or can use here"
    if message.attached is not None and receiver.attachment_support:
        if _notify(apprise, receiver, message, message.body, paths[message.attached]):
            return None
        if log.why not in _ATTACHMENT_REFUSALS:
            return log.why
    return None if _notify(apprise, receiver, message, _text_for(receiver, message)) else log.why


def _receiver(apprise: Any, address: str) -> Any:
    """Return apprise's object for an address; None if apprise does not know it."""
    asset = apprise.AppriseAsset(
        app_id="cloudgpu",
        app_desc="cloudgpu alerts",
        app_url="",
        image_url_mask="",  # so that no receiver loads an icon from another site
        image_url_logo="",
        secure_logging=True,
        storage_mode=apprise.PersistentStoreMode.MEMORY,
    )
    receiver = apprise.Apprise.instantiate(address, asset=asset)
    if receiver is not None and "overflow=" not in address:
        receiver.overflow_mode = apprise.OverflowMode.SPLIT  # a service that refuses long texts would never take it
    return receiver


def _text_for(receiver: Any, message: Message) -> str:
    """Return the text for a receiver that gets no file: the file's full text if it fits, else its short form."""
    if message.attached is None:
        return message.body
    full_text = message.attached.full_text
    return full_text if len(message.subject) + len(full_text) < receiver.body_maxlen else message.attached.summary


def _notify(apprise: Any, receiver: Any, message: Message, body: str, file: Path | None = None) -> bool:
    """Return whether the receiver accepted it. `Apprise.notify` has threads that would keep the process from ending."""
    default_type = apprise.NotifyType.WARNING if message.attached is None else apprise.NotifyType.INFO
    kind = apprise.NotifyType.FAILURE if message.urgent else default_type
    arguments = {"body": body, "title": message.subject, "notify_type": kind, "body_format": apprise.NotifyFormat.TEXT}
    if file is None or message.attached is None:
        return bool(receiver.notify(**arguments))
    query = urlencode({"name": message.attached.name, "mime": message.attached.type})
    attach = apprise.AppriseAttachment(f"file://{quote(str(file))}?{query}", asset=receiver.asset)
    return bool(receiver.notify(**arguments, attach=attach))


def _to_desktop(apprise: Any, message: Message) -> str | None:
    """Show the message on this computer's screen, by apprise if it can, else by notify-send; return why that failed."""
    text = message.body if message.attached is None else message.attached.summary
    for address in _DESKTOP_ADDRESSES.get(platform.system(), ()):
        receiver = _receiver(apprise, address)
        if receiver is not None and _notify(apprise, receiver, message, text):
            return None
    program = shutil.which("notify-send")
    if program is None:
        return "cannot be used here: there is neither a desktop that apprise knows nor notify-send"
    urgency = "critical" if message.urgent else "normal"
    command = [program, f"--urgency={urgency}", "--app-name=cloudgpu", "--", message.subject, text]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S, check=False)  # noqa: S603
    return None if result.returncode == 0 else f"notify-send ended with {result.returncode}"


@dataclass(slots=True)
class _AttemptLog:
    """Why one attempt failed, by what apprise and its libraries logged, without secrets."""

    why: str = "did not take it"

    def add(self, message: str) -> None:
        """Set `why` by the HTTP status or the kind of error in a logged message."""
        status = re.search(r"\berror[=:] ?(\d{3})\b", message)
        if status:
            self.why = f"answered {status[1]}"
        elif re.search(r"\bconnect|\btimed? ?out|refused|SMTP|socket", message, re.IGNORECASE):
            self.why = "could not be reached, or did not answer"


_ATTEMPT_LOG: ContextVar[_AttemptLog | None] = ContextVar("cloudgpu_alert_attempt", default=None)


class _LogFilter(logging.Filter):
    """Drops what is logged during an attempt, because it may have addresses. Other records pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        log = _ATTEMPT_LOG.get()
        if log is not None and record.levelno >= logging.WARNING:
            log.add(record.getMessage())
        return log is None


_LOG_FILTER = _LogFilter()
