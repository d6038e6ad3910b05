"""Whatever fails while a cluster is stopped, started and ended: no part of it runs of which nobody was told."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from cloudgpu.control.clusters.power import end_all, stop_all
from cloudgpu.control.clusters.start import start_all
from cloudgpu.control.clusters.together import errors_in
from cloudgpu.control.lifecycle.start import new_lease
from cloudgpu.errors import AnswerTimeout, CloudgpuError, EndRefused, InstanceNotFound, NoCapacity, ProviderUnavailable

REFUSED = {
    "stop": EndRefused("it is protected.", lifts="unlock"),
    "terminate": EndRefused("it is protected.", lifts="unlock"),
    "start": NoCapacity("the zone is full."),
    "get": AnswerTimeout("no answer in time."),
    "tag": ProviderUnavailable("no answer."),
}


def break_something(lab, random):
    """Let some of the next calls be refused, not be answered, or be answered by nobody though they were done."""
    for method in random.sample(sorted(REFUSED), random.randint(0, 2)):
        times = random.choice((1, 1, 2, 5))
        how = random.choice(("refused", "silent", "lost"))
        if how == "lost" and method != "get":
            lab.cloud.lose_reply(method, times=times)
        else:
            error = REFUSED[method] if how == "refused" else ProviderUnavailable("no answer.")
            lab.cloud.fail_next(method, error, times=times)


def tried(lab, verb):
    """Carry out a verb; return the faults that its user is told."""
    session = lab.session
    try:
        rows = session.find_all_nodes("train", verb)
        if verb == "start":
            return start_all(session, rows, new_lease(session, rows[0], timedelta(hours=2)), wait=False).errors
        if verb == "stop":
            return stop_all(session, rows, why="a test").errors
        return errors_in(end_all(session, rows, why="a test"))
    except InstanceNotFound:
        return ()
    except CloudgpuError as error:
        return (error,)


SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 60))]


@pytest.mark.parametrize("seed", SEEDS)
def test_after_each_verb_all_run_or_none_does_or_its_user_was_told(lab, seed):
    random = Random(seed)
    gang = lab.gang(3)
    for _ in range(4):
        verb = random.choice(("stop", "stop", "start", "start", "down"))
        break_something(lab, random)
        lab.said.clear()
        faults = tried(lab, verb)
        running = {one.tags["cloudgpu-name"] for one in lab.machines()}
        if not faults:
            expected = {row.name for row in lab.rows()} if verb == "start" else set()
            assert running == expected, verb
        elif running and len(running) < len(gang):
            before = [one for one in lab.said if "runs in part" in one]
            told = " ".join([*(f"{fault.message} {fault.next}" for fault in faults), *before])
            assert "cloudgpu stop train" in told or all(name in told for name in running), (verb, told, running)
        for row in gang:
            known = lab.session.ledger.machine(row.id)
            if row.name in running:
                assert known.terminated_at is None, row.name
                assert known.billed or known.pending_action or faults, row.name
