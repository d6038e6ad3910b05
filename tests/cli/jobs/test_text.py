"""Jobs as text: the commands that `run` names at the end do what it says."""

from __future__ import annotations

from datetime import timedelta

from cloudgpu.cli.jobs.text import ended_text
from cloudgpu.core.events import job_events
from cloudgpu.core.events.log import EventSummary
from cloudgpu.core.jobs.job import jobs_of
from cloudgpu.core.values.money import ZERO
from cloudgpu.core.values.times import iso
from cloudgpu.views.jobs import job_document
from tests.core.jobs.worlds import START, spec

END = START + timedelta(hours=1)


def test_results_on_a_volume_are_copied_by_a_command_that_cp_accepts():
    """`cp` refuses -r: it copies directories whole."""
    drafts = [
        job_events.job_requested("job-1", "fox", None, "here", spec(), START),
        job_events.job_ended("job-1", 1, "succeeded", END, status=0),
        job_events.job_results_fetched("job-1", 3, 9, "volume:keep/fox/results", "", END, whole=True, why=""),
    ]
    events = [
        EventSummary(seq, iso(draft.occurred_at), draft.kind, draft.subject, draft.dedupe, draft.body)
        for seq, draft in enumerate(drafts, 1)
    ]
    text = ended_text(job_document(jobs_of(events)["job-1"], {}, END, cost=ZERO), END)
    assert text.endswith("To get them: cloudgpu up --volume keep, then cloudgpu cp MACHINE:/data/fox/results .")
