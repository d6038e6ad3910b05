"""Asks machines when they were last in use: by their own word where there is one, and by their agents' samples.

A machine's own word needs no SSH, and is asked for where a listing does not tell it. Samples are read over SSH from
many machines at once, each for itself.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from cloudgpu.control.session.identity import by_account
from cloudgpu.core.activity.agent_status import DAY, OLD_AGENT, RING, AgentStatus, parse_agent_status, unknown_status
from cloudgpu.core.activity.report import Report
from cloudgpu.core.clusters.engine import split, tells_queue, with_queue
from cloudgpu.core.events.observations import has_moved_on, instance_observed_by_itself, not_before
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.reaper.decisions import CLOCK_SLACK
from cloudgpu.core.reaper.seen import Word
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.ledger.samples.store import SampleStore, sweep_daily
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import ReportsActivity

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.access.ssh.target import Target
    from cloudgpu.control.session.session import Session


def ask_activity(session: Session, machines: Sequence[Machine], *, keep: bool = True) -> dict[str, Word]:
    """Return what these machines say of their use, by id: one call for each; without those whose listing tells it.

    What is news is written into the ledger, unless `keep` is false. Raises LedgerUnavailable, and nothing else.
    """
    accounts, _ = by_account(session, machines)  # the sync has named the others
    askers = [(session.provider(name), some) for name, some in accounts.items()]
    groups = [(asker, some) for asker, some in askers if isinstance(asker, ReportsActivity)]
    if not groups:
        return {}
    with Pool(len(groups)) as pool:
        answers = pool.map(lambda group: _words(*group), groups)
    words = {machine: _plausible(session, word) for answer in answers for machine, word in answer.items()}
    if keep:
        _write(session, machines, words)
    return words


def _words(asker: ReportsActivity, machines: Sequence[Machine]) -> dict[str, Word]:
    answers = _answers(asker, [one for machine in machines if (one := machine.provider_id)])
    return {machine.id: answers.get(machine.provider_id or "") for machine in machines}


def _answers(asker: ReportsActivity, ids: Sequence[str]) -> Mapping[str, Word]:
    try:
        return asker.activity(ids)
    except CloudgpuError as error:
        return dict.fromkeys(ids, error)
    except Exception as bug:  # noqa: BLE001  (one provider's defect keeps no machine of another from its end)
        why = f"it could not be asked ({type(bug).__name__}: {bug})"
        return dict.fromkeys(ids, ProviderUnavailable(why, field="provider"))


def _plausible(session: Session, word: Word) -> Word:
    """Return the word; none where the machine's clock is so far ahead that it says nothing."""
    return None if isinstance(word, datetime) and word - session.clock() > CLOCK_SLACK else word


def _write(session: Session, machines: Sequence[Machine], words: Mapping[str, Word]) -> None:
    drafts = []
    for machine in machines:
        word, known = words.get(machine.id), machine.last_active
        if isinstance(word, datetime) and has_moved_on(from_iso(known) if known else None, word):
            drafts.append(instance_observed_by_itself(machine, word, not_before(machine, session.clock())))
    if drafts:
        session.ledger.append(drafts)


STATUS_COMMAND = '"$HOME"/.cloudgpu/agent status --since {since}'
MAX_ANSWER_BYTES = 2_000_000  # bytes of an answer: a day of samples is a tenth of it
MINUTE = 60.0
USAGE = 2  # how argparse ends for words that it does not know


def probe(
    session: Session,
    machines: Sequence[Machine],
    *,
    timeout: float = 10,
    at_once: int = 16,
    back: float = DAY,
    keep: bool = True,
) -> dict[str, Report]:
    """Ask each machine's agent over SSH, `at_once` side by side; return a report for every one, by its id.

    On the node that has its cluster's engine the same command asks that, too.

    `timeout` is seconds for one machine in all; one that is frozen costs its own lane no more. `back` is how many
    seconds of samples are wanted; an agent keeps a day of them. Raises nothing for any machine: what went wrong is its
    report's `fault`. Asks no provider, tells nobody, touches no ledger; what was said is kept in the home's samples,
    unless `keep` is false.
    """
    with suppress(OSError):
        if keep:
            sweep_daily(session.home.samples, session.clock())
    asks = [_ask_of(session, machine, _How(timeout, min(back, DAY), keep)) for machine in machines]
    with Pool(at_once, "machines") as pool:
        reports = list(pool.map(lambda ask: ask(), asks))
    return {one.row_id: one for one in reports}


class _How(NamedTuple):
    """How machines are asked: within how many seconds, for how many seconds of samples, and whether those are kept."""

    timeout: float
    back: float
    keep: bool
    queue: str | None = None  # of this cluster, on its node 0


def _ask_of(session: Session, machine: Machine, how: _How) -> Callable[[], Report]:
    """Return what asks this machine, in whatever thread; what needs the session is looked up before."""
    shelf, clock = SampleStore(session.home.samples, machine.id), session.clock
    how = how._replace(queue=machine.cluster.id) if machine.cluster and tells_queue(machine) else how
    try:
        target = session.target(machine)
    except CloudgpuError as error:
        missing = Report(machine.id, clock(), None, error.message.removesuffix("."))
        return lambda: missing

    def ask() -> Report:
        at = clock()
        try:
            found, engine = _asked(target, at.timestamp(), shelf.last() if how.keep else at.timestamp(), how)
        except CloudgpuError as error:
            found, engine = unknown_status(error.message.removesuffix(".")), ""
        except Exception as bug:  # noqa: BLE001  (the other machines have to be judged all the same)
            found, engine = unknown_status(f"{target.name} could not be asked ({type(bug).__name__}: {bug})"), ""
        return replace(_report(shelf, found, at, keep=how.keep), engine=engine)

    return ask


def _asked(target: Target, now: float, last: float, how: _How) -> tuple[AgentStatus, str]:
    """Ask one machine; return what its agent said, and its cluster's engine. Raises as `connect` and `capture` do."""
    from cloudgpu.access.ssh.connection import connect

    deadline = time.monotonic() + how.timeout
    since = min(now - how.back, max(last, now - RING))  # what nobody has asked for yet is wanted, too
    with connect(target, timeout=how.timeout) as connection:
        found, engine = _answer(connection, since, deadline, how.queue)
        if found.now is not None and found.now < now - MINUTE:  # its clock is behind ours
            found, _ = _answer(connection, found.now - (now - since), deadline)
    return found, engine


def _answer(connection: Connection, since: float, deadline: float, queue: str | None = None) -> tuple[AgentStatus, str]:
    left = max(1.0, deadline - time.monotonic())
    ask = STATUS_COMMAND.format(since=int(max(0, since)))
    command = ask if queue is None else f"sh -c {shlex.quote(with_queue(ask, queue))}"
    done = connection.capture(command, timeout=left, max_bytes=MAX_ANSWER_BYTES)
    output, engine = (done.stdout, "") if queue is None else split(done.stdout)
    if done.status == USAGE and not output:
        return unknown_status(OLD_AGENT), engine
    if done.status and not output:
        return unknown_status(f"its agent does not answer (status {done.status})"), engine
    return parse_agent_status(output), engine


def _report(shelf: SampleStore, status: AgentStatus, at: datetime, *, keep: bool) -> Report:
    """Return what was heard, and keep the samples; a disk that is full keeps nobody from being judged."""
    answer = None if status.answer is None else dict(status.answer)
    if status.now is None:
        return Report(shelf.id, at, answer, status.fault)
    with suppress(OSError):
        if keep:
            shelf.keep(status.samples, status.now, at)
    return Report(shelf.id, at, answer, status.fault, status.samples, status.now, status.up_since, status.scratch)
