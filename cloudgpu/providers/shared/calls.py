"""Makes calls to clouds side by side, in bulk and in waits, counts them, and checks the clock by their answers.

Side by side, what did not answer is named, and a silent part keeps no other one's answer. A part that says nothing for
too long is waited for no more: its thread is abandoned, and sends nothing after that. Retries count, for the clouds
count them. Credentials fail by a wrong clock. A wait tells what it waits for at once or after some seconds, then ever
more seldom, and ends early where nothing answers. The sends of a launch are counted, and spaced out.

A cloud refuses a call about forty machines whole when one of them cannot be stopped. Halved, one at fault costs at most
2 x ceil(log2 n) calls more, and the others are stopped.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import ceil, log2
from typing import TypeVar

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    EndRefused,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    ProviderUnavailable,
    RateLimited,
    Silent,
)
from cloudgpu.parallel import Pool, stop_if_abandoned
from cloudgpu.providers.patience import patience_s
from cloudgpu.providers.shared.account import CloudAccount

MAX_PARALLEL = 32
GRACE_S = 1.0  # added to a read's own timeout: its own error says better what was silent
ACCOUNTS_GRACE_S = (
    2 * GRACE_S
)  # a whole account has more than one of its regions, so that the others' answers are not lost
MAX_TIMES = (
    40  # times as long, in all, for a part that goes on answering: 5 minutes, against one that never comes to an end
)
Answer = TypeVar("Answer")
Item = TypeVar("Item")
T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


def ask_each(
    parts: Sequence[str], ask: Callable[[str], Answer], at_once: int = MAX_PARALLEL, *, patience: float | None = None
) -> tuple[dict[str, Answer], tuple[Unanswered, ...]]:
    """Ask each part (a region, say); return the answers by part, and those that did not answer with why.

    `patience` is how many seconds a read may be silent; None is the usual. Raises the first error when no part
    answered.
    """
    results = gather(parts, lambda part: result_or_error(ask, part), at_once, patience=patience, what="regions")
    outcomes = dict(zip(parts, results, strict=True))
    answers = {part: found for part, found in outcomes.items() if not isinstance(found, CloudgpuError)}
    faults = {part: fault for part, fault in outcomes.items() if isinstance(fault, CloudgpuError)}
    if faults and not answers:
        raise next(iter(faults.values()))
    return answers, tuple(Unanswered(part, fault.message) for part, fault in faults.items())


def gather(
    items: Sequence[Item],
    ask: Callable[[Item], Answer],
    at_once: int = MAX_PARALLEL,
    *,
    patience: float | None = None,
    grace: float = GRACE_S,
    what: str = "",
) -> list[Answer | Silent]:
    """Ask about each of these side by side; return the answers in their order, Silent in place of what said nothing.

    `what` the items are, in the plural, is counted.
    For reads alone: nobody knows afterwards what a call that was left has done. Raises what `ask` raises first.
    """
    seconds = (patience or patience_s()) + grace
    with Pool(min(at_once, len(items)), what) as pool:
        sent = [pool.submit(ask, item) for item in items]
        return [one.result() if one.listen(seconds, MAX_TIMES * seconds) else silence_error(seconds) for one in sent]


def by_item(items: Iterable[Key], ask: Callable[[Key], Answer], at_once: int = MAX_PARALLEL) -> dict[Key, Answer]:
    """Return what `ask` answers for each of these, side by side; raise what it raises first."""
    distinct = list(dict.fromkeys(items))
    with Pool(at_once) as pool:
        return dict(zip(distinct, pool.map(ask, distinct), strict=True))


def silence_error(seconds: float) -> Silent:
    """Return the error for a call without an answer for that many seconds."""
    return Silent(f"No answer within {seconds:g} seconds.", field="provider", next="Try again in a minute.")


def result_or_error(ask: Callable[..., Answer], *arguments: object) -> Answer | CloudgpuError:
    """Return what `ask` returns for these arguments, or the CloudgpuError that it raises."""
    try:
        return ask(*arguments)
    except CloudgpuError as error:
        return error


def retry(
    call: Callable[[], Answer],
    tries: int,
    *,
    after: Callable[[CloudgpuError], bool],
    pause: Callable[[int], object] = int,
) -> Answer:
    """Return what a call answers, which is made again `after` errors that may be over soon, so many times in all.

    `pause` waits, and is told how many tries there were; none is the usual.
    """
    for number in range(1, tries):
        try:
            return call()
        except CloudgpuError as error:
            if not after(error):
                raise
        pause(number)
    return call()


_SENT_LOCK = threading.Lock()
_SENT: Counter[tuple[str, str]] = Counter()


def count(provider: str, operation: str) -> None:
    """Count one request; raise Abandoned where nobody waits for it any more."""
    stop_if_abandoned()
    with _SENT_LOCK:
        _SENT[provider, operation] += 1


def calls() -> dict[tuple[str, str], int]:
    """Return how many requests were sent, by (provider, operation)."""
    with _SENT_LOCK:
        return dict(_SENT)


SKEW = timedelta(minutes=4)  # AWS refuses at 5 minutes (InvalidSecurity.RequestHasExpired) or at 15 (RequestExpired)


def is_skewed(headers: Mapping[str, str], now: datetime) -> bool:
    """Say whether an answer's own time is so far from `now` (aware UTC) that credentials are refused for it."""
    there = _date(headers)
    return there is not None and abs(there - now) > SKEW


def wrong_clock(cloud: str, where: str, headers: Mapping[str, str], now: datetime) -> AuthFailed:
    """Return the error for a request that a cloud refuses for its time: by the time that its own answer bears.

    Where the two clocks agree, the request came late: this clock is right, and to set it would not help. `where` is
    where the cloud refuses, empty for nowhere in it.
    """
    there, whom = _date(headers), f"{cloud} {where}".rstrip()
    if there is not None and abs(there - now) <= SKEW:
        return AuthFailed(
            f"{whom} refused a request as expired, but the clock of this machine is right ({now:%H:%M:%S} UTC here, "
            f"{there:%H:%M:%S} UTC at {cloud}): the request came too late.",
            field="clock",
            next="Run it again. If it happens again, look for a proxy that holds requests back.",
        )
    says = (
        f"{now:%Y-%m-%d %H:%M} UTC here, {there:%Y-%m-%d %H:%M} UTC at {cloud}"
        if there
        else (f"{now:%Y-%m-%d %H:%M} UTC here; {cloud} rejected that without saying its own time")
    )
    sentence = f"The clock of this machine is wrong ({says}), so {whom} refuses what it signs."
    return AuthFailed(sentence, field="clock", next="Set the clock (for example: sudo timedatectl set-ntp true).")


def _date(headers: Mapping[str, str]) -> datetime | None:
    """Return the cloud's own time of an answer, aware UTC."""
    text = next((text for name, text in headers.items() if name.lower() == "date"), "")
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None


Refusals = dict[str, CloudgpuError]  # by id
_ERRORS_ABOUT_ONE = (
    InvalidRequest,
    InstanceNotFound,
    AuthFailed,
    EndRefused,
)  # others (no answer, throttled) are about the whole call


def call_in_halves(ids: Sequence[str], ask: Callable[[Sequence[str]], None]) -> Refusals:
    """Call `ask` with all `ids`, in halves where that is refused; return the errors of the refused ones, by id.

    `ask` raises what the provider says of a whole call. A permission may be missing for one machine (it depends on
    tags): such a refusal is halved too, until more calls in a row were denied than one machine can cause.
    """
    return _Halving(ask, 2 * ceil(log2(max(2, len(ids)))) + 1).run(list(ids))


class _Halving:
    """One run: the denials since the last accepted call, and how many of them end it."""

    def __init__(self, ask: Callable[[Sequence[str]], None], max_denials: int) -> None:
        self._ask = ask
        self._max_denials = max_denials
        self._denied: list[AuthFailed] = []

    def run(self, ids: Sequence[str]) -> Refusals:
        """Ask about these; return those that were refused."""
        if not ids or len(self._denied) >= self._max_denials:
            return dict.fromkeys(ids, self._denied[-1]) if ids else {}
        try:
            self._ask(ids)
        except CloudgpuError as error:
            return self._refused(ids, error)
        self._denied.clear()
        return {}

    def _refused(self, ids: Sequence[str], error: CloudgpuError) -> Refusals:
        if isinstance(error, AuthFailed):
            self._denied.append(error)
        if len(ids) == 1 or not isinstance(error, _ERRORS_ABOUT_ONE):
            return dict.fromkeys(ids, error)
        half = len(ids) // 2
        return {**self.run(ids[:half]), **self.run(ids[half:])}


SILENT_FOR_S = 10.0  # what takes no longer is not worth a sentence


class Waiting:
    """One wait, until a time (aware UTC). `what` is the beginning of a sentence: "x is not stopped yet"."""

    def __init__(
        self,
        notify: Callable[[str], object],
        clock: Callable[[], datetime],
        what: str,
        until: datetime,
        *,
        after: float = SILENT_FOR_S,
    ) -> None:
        self._notify, self._clock, self._what, self._until = notify, clock, what, until
        self._tries = 0
        self._pause = max(after, SILENT_FOR_S)
        self._next = clock() + timedelta(seconds=after)

    def report_progress(self, last: str) -> None:
        """Report that the wait goes on, where a report is due; `last` is the last message."""
        self._tries += 1
        now = self._clock()
        if now < self._next:
            return
        self._next, self._pause = now + timedelta(seconds=self._pause), 2 * self._pause
        tries = "1 try" if self._tries == 1 else f"{self._tries} tries"
        self._notify(f"{self._what} after {tries} ({last.rstrip('.')}). Trying until {self._until:%H:%M:%S} UTC.")


SILENT_SENDS = 2  # after so many a launch is left uncertain: whoever settles it sends it again
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 20.0


class SendLimits:
    """The sends of one launch's call, until a time (aware UTC), to a cloud that knows a second one for the same.

    `what` is the beginning of a sentence, as in `Waiting`; `uncertain` returns the error of a launch of which nobody
    knows whether it made the machine.
    """

    def __init__(
        self, account: CloudAccount, what: str, until: datetime, uncertain: Callable[[CloudgpuError], LaunchUncertain]
    ) -> None:
        self._account, self._until, self._uncertain = account, until, uncertain
        self._waiting = Waiting(account.notify, account.clock, what, until, after=0)
        self._pause, self._silent = FIRST_PAUSE_S, 0
        self.unsure = False  # one was not answered: it may have made the machine

    def unanswered(self, error: ProviderUnavailable) -> None:
        """Wait for the next send after one that says nothing of the launch; raise LaunchUncertain for too many."""
        self.unsure |= not isinstance(error, RateLimited)
        self._silent += isinstance(error, Silent)
        if self._silent == SILENT_SENDS:
            raise self._uncertain(error) from error
        self.wait(error, error.retry_after if isinstance(error, RateLimited) else None)

    def wait(self, error: CloudgpuError, seconds: float | None = None) -> None:
        """Wait so many seconds; None is twice as long as the last time.

        Raises what the last send was answered where that would end too late, LaunchUncertain where one was not.
        """
        seconds = seconds or self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        if seconds < (self._until - self._account.clock()).total_seconds():
            self._waiting.report_progress(error.message)
            self._account.pause(seconds)
            return
        if not self.unsure:
            raise error
        raise self._uncertain(error) from error


SILENCE_LIMIT = timedelta(seconds=10)  # after the first poll that was not answered


class UnansweredRounds:
    """How long rounds of polls have each had a poll without an answer. An error is an answer."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.first_message = ""  # of the error for the first poll without an answer
        self._silent = False  # in this round
        self._since: datetime | None = None

    def record(self, error: CloudgpuError) -> str:
        """Record the error of a poll of this round; return its message without the full stop."""
        message = error.message.removesuffix(".")
        if isinstance(error, Silent):
            self._silent, self.first_message = True, self.first_message or message
        return message

    @property
    def is_unanswered(self) -> bool:
        """Whether a poll of this round was not answered."""
        return self._silent

    def end_round(self) -> bool:
        """End the round; say whether polls have gone unanswered for SILENCE_LIMIT."""
        silent, self._silent = self._silent, False
        now = self._clock()
        self._since = (self._since or now) if silent else None
        return self._since is not None and now - self._since >= SILENCE_LIMIT


def poll_until(
    ask: Callable[[], T | None],
    make_error: Callable[[str], CloudgpuError],
    within: timedelta,
    *,
    clock: Callable[[], datetime],
    pause: Callable[[float], None],
    last_message: str,
    first_s: float = 0.2,
    longest_s: float = 5.0,
    raised_at_once: tuple[type[CloudgpuError], ...] = (),
) -> T:
    """Poll `ask` until it returns something other than None, with longer and longer pauses, and return that.

    Raises what `make_error` makes of the last error's message (`last_message` where there was none) once it took longer
    than `within`, or polls go unanswered; an error that is no ProviderUnavailable, or in `raised_at_once`, at once.
    """
    deadline, pause_s, silence = clock() + within, first_s, UnansweredRounds(clock)
    while True:
        try:
            found = ask()
        except raised_at_once:
            raise
        except ProviderUnavailable as error:
            last_message = silence.record(error)
        else:
            if found is not None:
                return found
        if clock() >= deadline or silence.end_round():
            raise make_error(last_message)
        pause(pause_s)
        pause_s = min(longest_s, pause_s * 1.5)
