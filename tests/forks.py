"""Runs the tests in forks of the process that has collected them: `-p tests.forks --forks 4`.

To import three SDKs and to collect 11,000 tests takes half a minute of a core: a worker of pytest-xdist does it for
itself, a fork has it. Each fork takes one file after the other, in their order, and runs its tests as pytest does;
what it reports is reported here. A fork that is gone has failed the test that it was at, and another goes on.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import random
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest

LEAVES_WITHIN_S = 60  # whatever threads a test has left to it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="run the tests in so many forks, file by file")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all in forks, where that was asked for and there is something to run."""
    config = session.config
    if not config.option.forks or config.option.collectonly or not session.items:
        return None
    if session.testsfailed and not config.option.continue_on_collection_errors:
        return None  # pytest says what it could not collect
    Forks(session, config.option.forks).run()
    return True


class Forks:
    """The forks of a run, and which tests are still to be begun."""

    def __init__(self, session: pytest.Session, number: int) -> None:
        self.session, self.number = session, number
        places = enumerate(session.items)
        files = groupby(places, key=lambda place: place[1].nodeid.partition("::")[0])
        self.waiting = deque([place for place, _ in file] for _, file in files)
        self.begun = 0
        self.forks: dict[Connection, Fork] = {}

    def run(self) -> None:
        """Run all, until all are done or a failure ends the run."""
        self.session.config._tmp_path_factory.getbasetemp()  # once: it is emptied where it was there before
        try:
            for _ in range(min(self.number, len(self.waiting))):
                self._begin()
            while self.forks:
                for ours in wait(list(self.forks)):
                    self._hear(self.forks[ours])
                if self.session.shouldfail or self.session.shouldstop:
                    self.waiting.clear()
        finally:
            for fork in self.forks.values():
                fork.kill()
        for word in (self.session.shouldfail, self.session.shouldstop):
            if word:
                raise (self.session.Failed if word is self.session.shouldfail else self.session.Interrupted)(word)

    def _begin(self, places: list[int] | None = None) -> None:
        ours, theirs = Pipe()
        self.begun += 1
        places = self.waiting.popleft() if places is None else places
        pid = os.fork()
        if pid == 0:
            _live(self.session, self.begun, theirs, places, [ours, *self.forks])
        theirs.close()
        self.forks[ours] = Fork(pid, ours, places)

    def _hear(self, fork: Fork) -> None:
        """Take what a fork says: it asks for more tests, begins or ends one, reports."""
        hook = self.session.config.hook
        try:
            word, value = fork.ours.recv()
        except (EOFError, OSError):
            self._is_gone(fork)
            return
        if word == "more":
            more = self.waiting.popleft() if self.waiting else []
            fork.places += more
            fork.ours.send(more)
        elif word == "begin":
            fork.at = value
            item = self.session.items[value]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif word == "end":
            fork.places.remove(value)
            fork.at = None
            item = self.session.items[value]
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        else:
            report = hook.pytest_report_from_serializable(config=self.session.config, data=value)
            hook.pytest_runtest_logreport(report=report)

    def _is_gone(self, fork: Fork) -> None:
        """Wait for a fork that has ended; fail the test that it was at, and let another one go on."""
        del self.forks[fork.ours]
        fork.ours.close()
        _, status = os.waitpid(fork.pid, 0)
        if fork.at is not None:
            item = self.session.items[fork.at]
            said = f"the process that ran it is gone: {os.waitstatus_to_exitcode(status)}"
            self.session.config.hook.pytest_runtest_logreport(
                report=pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
            )
            fork.places.remove(fork.at)
        if fork.places:
            self._begin(fork.places)


class Fork:
    """One of them: which tests it has and has not ended, and which one it is `at`."""

    def __init__(self, pid: int, ours: Connection, places: list[int]) -> None:
        self.pid, self.ours, self.places = pid, ours, list(places)
        self.at: int | None = None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


def _live(session: pytest.Session, number: int, theirs: Connection, places: list[int], others: list[Any]) -> None:
    """Be a fork, to the end of its process."""
    code = 1
    try:
        for one in others:
            one.close()
        _settle(session.config, number, Reporter(theirs, session.config))
        _work(session, theirs, places)
        code = 0
    except BaseException:  # noqa: BLE001  (whoever is interrupted ends here, too)
        traceback.print_exc(file=sys.__stderr__)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LEAVES_WITHIN_S)
        with contextlib.suppress(BaseException):
            threading._shutdown()
            atexit._run_exitfuncs()
        os._exit(code)


def _settle(config: pytest.Config, number: int, reporter: Reporter) -> None:
    """Let nothing be shared with the process that it came from: not what is captured, nor where files lie."""
    plugins = config.pluginmanager
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    plugins.unregister(plugins.getplugin("terminalreporter"))
    plugins.register(reporter)
    made = config._tmp_path_factory
    made._basetemp = made.getbasetemp() / f"fork{number}"
    made._basetemp.mkdir()
    random.seed()
    gc.freeze()


def _work(session: pytest.Session, theirs: Connection, places: list[int]) -> None:
    """Run these tests and all that it is given after them; the last one's successor is asked for before it begins."""

    def more() -> list[int]:
        theirs.send(("more", None))
        found: list[int] = theirs.recv()
        return found

    following = _each(places, more)
    place = next(following, None)
    while place is not None:
        after = next(following, None)
        item, then = session.items[place], None if after is None else session.items[after]
        theirs.send(("begin", place))
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=then)
        theirs.send(("end", place))
        place = after


def _each(places: list[int], more: Callable[[], list[int]]) -> Iterator[int]:
    while places:
        yield from places
        places = more()


class Reporter:
    """Sends each report to the process that collected."""

    def __init__(self, theirs: Connection, config: pytest.Config) -> None:
        self._theirs, self._config = theirs, config

    def pytest_runtest_logreport(self, report: Any) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._theirs.send(("report", data))
