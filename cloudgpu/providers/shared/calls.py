"""Makes calls to clouds in parallel, in bulk, by pages, in waits, counts them, and checks the clock by their answers.

In parallel, what did not answer is named, and a silent part (a region, an account) holds up no other one's answer. A
part that says nothing for too long is waited for no more: its thread is abandoned, and sends nothing after that.
Requests are counted with their retries, for the clouds count those. A wrong clock makes clouds refuse credentials. A
wait is reported at once or after some seconds, then ever more seldom, and ends early where nothing answers. The sends
of a launch are counted, and spaced out.

A cloud refuses a call about forty machines whole when one of them cannot be stopped. Halved, one refused machine costs
at most 2 x ceil(log2 n) calls more, and the others are stopped.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import ceil, log2
from typing import TypeVar

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.errors import (
    AnswerTimeout,
    AuthFailed,
    CloudgpuError,
    EndRefused,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    ProviderUnavailable,
    RateLimited,
)
from cloudgpu.parallel import Pool, stop_if_abandoned
from cloudgpu.providers.patience import patience_s
from cloudgpu.providers.shared.account import CloudAccount

MAX_PARALLEL = 32
MAX_PAGES = 500  # of one list: more are taken for a list without an end
GRACE_S = 1.0  # added to a read's own timeout: the read's own error says better what did not answer
# For a whole account: longer than for one of its regions, so that the other regions' answers are not lost.
ACCOUNTS_GRACE_S = 2 * GRACE_S
# A part that goes on answering has this many times its timeout in all (5 minutes), so that none goes on for ever.
TOTAL_TIMEOUT_FACTOR = 40
Answer = TypeVar("Answer")
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def ask_each(
    parts: Sequence[str],
    ask: Callable[[str], Answer],
    max_parallel: int = MAX_PARALLEL,
    *,
    answer_timeout_s: float | None = None,
) -> tuple[dict[str, Answer], tuple[Unanswered, ...]]:
    """Call `ask` with each part (a region, say) in parallel; return the answers by part, and the parts that failed.

    `answer_timeout_s` is how many seconds a read may go unanswered, None for the usual. Raises the first error when no
    part answered.
    """
    results = gather(
        parts, lambda part: result_or_error(ask, part), max_parallel, answer_timeout_s=answer_timeout_s, what="regions"
    )
    outcomes = dict(zip(parts, results, strict=True))
    answers = {part: outcome for part, outcome in outcomes.items() if not isinstance(outcome, CloudgpuError)}
    errors = {part: error for part, error in outcomes.items() if isinstance(error, CloudgpuError)}
    if errors and not answers:
        raise next(iter(errors.values()))
    return answers, tuple(Unanswered(part, error.message) for part, error in errors.items())


def check_all_answered(
    unanswered: Sequence[Unanswered], sentence: str, *, field: str = "provider", remedy: str | None = None
) -> None:
    """Raise ProviderUnavailable for the first of these parts: `sentence`, with its name for {scope}, and the reason."""
    if unanswered:
        scope, why = unanswered[0].scope, unanswered[0].why
        raise ProviderUnavailable(f"{sentence.format(scope=scope)}: {why}", field=field, value=scope, next=remedy)


def gather(
    items: Sequence[Item],
    ask: Callable[[Item], Answer],
    max_parallel: int = MAX_PARALLEL,
    *,
    answer_timeout_s: float | None = None,
    grace: float = GRACE_S,
    what: str = "",
) -> list[Answer | AnswerTimeout]:
    """Call `ask` with each item in parallel; return the answers in order, an AnswerTimeout where none came in time.

    `answer_timeout_s` (None: the usual) plus `grace` are the seconds without an answer, `what` is the plural of the
    items for the progress shown. For reads alone: nobody knows what an abandoned call has done. Raises what `ask`
    raises first.
    """
    seconds = (answer_timeout_s or patience_s()) + grace
    with Pool(min(max_parallel, len(items)), what) as pool:
        calls = [pool.submit(ask, item) for item in items]
        return [
            call.result() if call.listen(seconds, TOTAL_TIMEOUT_FACTOR * seconds) else silence_error(seconds)
            for call in calls
        ]


def by_item(items: Iterable[Key], ask: Callable[[Key], Answer], max_parallel: int = MAX_PARALLEL) -> dict[Key, Answer]:
    """Return what `ask` returns for each item, in parallel and without a timeout; raise what it raises first."""
    distinct = list(dict.fromkeys(items))
    with Pool(max_parallel) as pool:
        return dict(zip(distinct, pool.map(ask, distinct), strict=True))


def silence_error(seconds: float) -> AnswerTimeout:
    """Return the error for a call without an answer for that many seconds."""
    return AnswerTimeout(f"No answer within {seconds:g} seconds.", field="provider", next="Try again in a minute.")


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
    """Return what `call` returns; after an error for which `after` is true, call again, up to `tries` times in all.

    `pause` is called with the number of tries so far, and waits; the default (`int`) does not. Raises the last error.
    """
    for tries_so_far in range(1, tries):
        try:
            return call()
        except CloudgpuError as error:
            if not after(error):
                raise
        pause(tries_so_far)
    return call()


def linked_pages(
    read: Callable[[str], Answer], next_link: Callable[[Answer], str], endless_error: CloudgpuError
) -> Iterator[Answer]:
    """Yield the pages of a list, each read by what `next_link` returns of the one before; the first with an empty text.

    Raises `endless_error` for a link that came before, and after MAX_PAGES.
    """
    link, seen_links = "", set[str]()
    for _ in range(MAX_PAGES):
        page = read(link)
        yield page
        link = next_link(page)
        if not link:
            return
        if link in seen_links:
            break
        seen_links.add(link)
    raise endless_error


_SENT_LOCK = threading.Lock()
_SENT_COUNTS: Counter[tuple[str, str]] = Counter()


def count_request(provider: str, operation: str) -> None:
    """Count one request; raise Abandoned where nobody waits for it any more."""
    stop_if_abandoned()
    with _SENT_LOCK:
        _SENT_COUNTS[provider, operation] += 1


def request_counts() -> dict[tuple[str, str], int]:
    """Return how many requests were sent, by (provider, operation)."""
    with _SENT_LOCK:
        return dict(_SENT_COUNTS)


# AWS refuses at 5 minutes (InvalidSecurity.RequestHasExpired) or at 15 (RequestExpired).
MAX_SKEW = timedelta(minutes=4)


def is_skewed(headers: Mapping[str, str], now: datetime) -> bool:
    """Say whether an answer's Date header is so far from `now` (aware UTC) that clouds refuse credentials for it."""
    cloud_time = _answer_time(headers)
    return cloud_time is not None and abs(cloud_time - now) > MAX_SKEW


def wrong_clock(cloud: str, where: str, headers: Mapping[str, str], now: datetime) -> AuthFailed:
    """Return the error for a request that a cloud refuses for its time; the answer's Date header has the cloud's.

    Where the two clocks agree, the request came late: this clock is right, and to set it would not help. `where` is the
    region that refuses, empty for none.
    """
    cloud_time, refuser = _answer_time(headers), f"{cloud} {where}".rstrip()
    if cloud_time is not None and abs(cloud_time - now) <= MAX_SKEW:
        return AuthFailed(
            f"{refuser} refused a request as expired, but the clock of this machine is right ({now:%H:%M:%S} UTC here, "
            f"{cloud_time:%H:%M:%S} UTC at {cloud}): the request came too late.",
            field="clock",
            next="Run it again. If it happens again, look for a proxy that holds requests back.",
        )
    clocks = (
        f"{now:%Y-%m-%d %H:%M} UTC here, {cloud_time:%Y-%m-%d %H:%M} UTC at {cloud}"
        if cloud_time
        else (f"{now:%Y-%m-%d %H:%M} UTC here; {cloud} rejected that without saying its own time")
    )
    sentence = f"The clock of this machine is wrong ({clocks}), so {refuser} refuses what it signs."
    return AuthFailed(sentence, field="clock", next="Set the clock (for example: sudo timedatectl set-ntp true).")


def _answer_time(headers: Mapping[str, str]) -> datetime | None:
    """Return the time of an answer's Date header, aware UTC; None without one."""
    text = next((text for name, text in headers.items() if name.lower() == "date"), "")
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None


Refusals = dict[str, CloudgpuError]  # by machine id
# Errors that one machine of a bulk call may cause; others (no answer, throttled) are about the whole call.
_ERRORS_ABOUT_ONE = (InvalidRequest, InstanceNotFound, AuthFailed, EndRefused)


def call_in_halves(ids: Sequence[str], ask: Callable[[Sequence[str]], None]) -> Refusals:
    """Call `ask` with all `ids`, in halves where that is refused; return the errors of the refused ones, by id.

    `ask` raises the provider's error for the whole call. A permission may be missing for one machine (it depends on
    tags): such a call is halved too, until more calls in a row were denied than one machine can cause.
    """
    return _Halving(ask, 2 * ceil(log2(max(2, len(ids)))) + 1).run(list(ids))


class _Halving:
    """One `call_in_halves`: `_denied` are the denials since the last accepted call, `max_denials` of them end it."""

    def __init__(self, ask: Callable[[Sequence[str]], None], max_denials: int) -> None:
        self._ask = ask
        self._max_denials = max_denials
        self._denied: list[AuthFailed] = []

    def run(self, ids: Sequence[str]) -> Refusals:
        """Call `ask` with these, in halves where it refuses; return the errors of the refused ones."""
        if not ids or len(self._denied) >= self._max_denials:
            return dict.fromkeys(ids, self._denied[-1]) if ids else {}
        try:
            self._ask(ids)
        except CloudgpuError as error:
            return self._split_or_record(ids, error)
        self._denied.clear()
        return {}

    def _split_or_record(self, ids: Sequence[str], error: CloudgpuError) -> Refusals:
        if isinstance(error, AuthFailed):
            self._denied.append(error)
        if len(ids) == 1 or not isinstance(error, _ERRORS_ABOUT_ONE):
            return dict.fromkeys(ids, error)
        half = len(ids) // 2
        return {**self.run(ids[:half]), **self.run(ids[half:])}


FIRST_REPORT_AFTER_S = 10.0  # a wait that is shorter is not reported


class WaitReports:
    """Reports to the user that one wait goes on, at growing intervals: the first time `after` seconds.

    `what` begins the sentence ("x is not stopped yet"); `until` is the deadline of the wait, aware UTC.
    """

    def __init__(
        self,
        notify: Callable[[str], object],
        clock: Callable[[], datetime],
        what: str,
        until: datetime,
        *,
        after: float = FIRST_REPORT_AFTER_S,
    ) -> None:
        self._notify, self._clock, self._what, self._until = notify, clock, what, until
        self._tries = 0
        self._interval_s = max(after, FIRST_REPORT_AFTER_S)
        self._next_report_at = clock() + timedelta(seconds=after)

    def report_progress(self, last_message: str) -> None:
        """Count a try, and notify the user where a report is due; `last_message` is the message of the last try."""
        self._tries += 1
        now = self._clock()
        if now < self._next_report_at:
            return
        self._next_report_at, self._interval_s = now + timedelta(seconds=self._interval_s), 2 * self._interval_s
        tries = "1 try" if self._tries == 1 else f"{self._tries} tries"
        self._notify(
            f"{self._what} after {tries} ({last_message.rstrip('.')}). Trying until {self._until:%H:%M:%S} UTC."
        )


SILENT_SENDS = 2  # after so many unanswered sends a launch is left uncertain: whoever resolves it sends it again
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 20.0  # between two sends of a launch


class LaunchSends:
    """The pauses between the sends of one launch's call, to a cloud with idempotency tokens, until a time (aware UTC).

    `what` is as in `WaitReports`; `uncertain` returns the error of a launch of which nobody knows whether it made the
    machine.
    """

    def __init__(
        self, account: CloudAccount, what: str, until: datetime, uncertain: Callable[[CloudgpuError], LaunchUncertain]
    ) -> None:
        self._account, self._until, self._uncertain = account, until, uncertain
        self._waiting = WaitReports(account.notify, account.clock, what, until, after=0)
        self._pause, self._silent_count = FIRST_PAUSE_S, 0
        self.may_have_launched = False  # a send was not answered: it may have made the machine

    def record_unanswered(self, error: ProviderUnavailable) -> None:
        """Record a send whose `error` does not say what became of the launch, and wait for the next one.

        Raises LaunchUncertain after SILENT_SENDS without any answer, and as `wait`.
        """
        self.may_have_launched |= not isinstance(error, RateLimited)
        self._silent_count += isinstance(error, AnswerTimeout)
        if self._silent_count == SILENT_SENDS:
            raise self._uncertain(error) from error
        self.wait(error, error.retry_after if isinstance(error, RateLimited) else None)

    def wait(self, error: CloudgpuError, seconds: float | None = None) -> None:
        """Wait so many seconds; None: twice as long as the last time. `error` is the answer to the last send.

        Where the wait would end after the deadline, raises `error`, or LaunchUncertain if a send was not answered.
        """
        seconds = seconds or self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        if seconds < (self._until - self._account.clock()).total_seconds():
            self._waiting.report_progress(error.message)
            self._account.pause(seconds)
            return
        if not self.may_have_launched:
            raise error
        raise self._uncertain(error) from error


SILENCE_LIMIT = timedelta(seconds=10)  # after the first poll that was not answered


class UnansweredRounds:
    """For how long each round of polls (one poll per machine) had a poll without an answer. An error is an answer."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.first_message = ""  # of the error for the first poll without an answer
        self._is_round_silent = False  # a poll of this round was not answered
        self._silent_since: datetime | None = None  # the end of the first round of those

    def record(self, error: CloudgpuError) -> str:
        """Record the error of a poll of this round; return its message without the full stop."""
        message = error.message.removesuffix(".")
        if isinstance(error, AnswerTimeout):
            self._is_round_silent, self.first_message = True, self.first_message or message
        return message

    @property
    def is_unanswered(self) -> bool:
        """Whether a poll of this round was not answered."""
        return self._is_round_silent

    def end_round(self) -> bool:
        """End the round; say whether polls have gone unanswered for SILENCE_LIMIT."""
        was_silent, self._is_round_silent = self._is_round_silent, False
        now = self._clock()
        self._silent_since = (self._silent_since or now) if was_silent else None
        return self._silent_since is not None and now - self._silent_since >= SILENCE_LIMIT


def poll_until(
    ask: Callable[[], Answer | None],
    make_error: Callable[[str], CloudgpuError],
    within: timedelta,
    *,
    clock: Callable[[], datetime],
    pause: Callable[[float], None],
    last_message: str,
    first_s: float = 0.2,
    longest_s: float = 5.0,
    raised_at_once: tuple[type[CloudgpuError], ...] = (),
) -> Answer:
    """Poll `ask` until it returns something other than None, and return that.

    The pauses grow from `first_s` to `longest_s` seconds. Raises what `make_error` makes of the last error's message
    (`last_message` where there was none) after `within`, or when polls go unanswered for SILENCE_LIMIT. An error that
    is no ProviderUnavailable, or is in `raised_at_once`, is raised at once.
    """
    deadline, pause_s, silence = clock() + within, first_s, UnansweredRounds(clock)
    while True:
        try:
            answer = ask()
        except raised_at_once:
            raise
        except ProviderUnavailable as error:
            last_message = silence.record(error)
        else:
            if answer is not None:
                return answer
        if clock() >= deadline or silence.end_round():
            raise make_error(last_message)
        pause(pause_s)
        pause_s = min(longest_s, pause_s * 1.5)
