"""What the library answers where it plans a job."""

from typing import TypedDict

from cloudgpu.views.documents.jobs.jobs import JobDocument
from cloudgpu.views.documents.machines.plans import Plan
from cloudgpu.views.documents.parts import Usd


class StaysHere(TypedDict):
    """A file or directory that does not travel."""

    path: str
    """Where it is, in the workdir."""
    bytes: int
    """How large it is; of a large directory, at least."""


class JobPlan(TypedDict):
    """A job as planned."""

    name: str
    """Its name."""
    command: list[str]
    """Its words."""
    machine: str | None
    """The machine that is there and is used; null: one is launched."""
    launch: Plan | None
    """The launch of its machine; null for one that is there."""
    files: int
    """How many files travel."""
    bytes: int
    """Their size."""
    left_out: list[StaysHere]
    """The five largest of what stays."""
    secrets: list[str]
    """The files that stay because their names look like secrets."""
    results: str
    """The directory on this computer to which results come back."""
    dearest_usd: Usd | None
    """The most that it may cost; null where that has no end, or its machine is there."""


class PlannedJobDocument(TypedDict):
    """What `run` would do."""

    plan: JobPlan | None
    """The new job; null where one that lives would be followed instead."""
    existing: JobDocument | None
    """The job of this name or key that lives; null: there is none."""
