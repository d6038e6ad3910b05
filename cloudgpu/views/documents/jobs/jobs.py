"""Documents of `jobs`, `cancel`, `show` for a job, and of what the library plans."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.core.jobs.job import State as _State
from cloudgpu.views.documents.machines.plans import Plan
from cloudgpu.views.documents.parts import Market, NamedMachine, OfAccount, State, Time, Usd

JobState = Annotated[str, _State]
By = Annotated[str, Literal["command", "cloudgpu"]]
ExpectedBy = Annotated[str, Literal["progress", "timeout"]]


class JobMachine(NamedMachine, OfAccount):
    """The machine that a job runs on, or ran on last."""

    state: State
    """As last seen."""
    region: str
    """Its region."""
    zone: str | None
    """Its zone; null where it has none."""
    instance_type: str | None
    """Its type; null where it has none."""
    market: Market
    """How it was bought."""
    usd_per_hour: Usd | None
    """Its price; null when no price is known."""
    own: bool
    """It was launched for this job, and ends with it."""


class JobAttempt(TypedDict):
    """One try of a job on one machine."""

    number: int
    """From 1 on."""
    machine: str | None
    """The machine's name; null until there is one."""
    members: list[str]
    """Names of a cluster's nodes, also of those that were ended because others were refused; empty for one machine."""
    placed_at: Time
    """When it was decided to run it there."""
    began_at: Time | None
    """When the command began, by the machine's clock; null: it has not."""
    setup_s: float | None
    """Seconds that the setup took; null without one."""
    ended_at: Time | None
    """When it ended; null while it runs."""
    interrupted: bool
    """Its machine was taken away, or ended."""
    status: int | None
    """The command's exit status; null where it is not known."""
    why: str
    """Why it ended; empty while it runs."""


class JobProgress(TypedDict):
    """How far a job is, as its command reported."""

    done: float
    """How much is done."""
    of: float | None
    """How much there is to do in all; null: the command does not say."""
    percent: float | None
    """From 0 to 100; null where `of` is."""
    at: Time
    """When that was read."""


class JobWaits(TypedDict):
    """What a job waits for that has not begun: a machine, or enough free capacity on the machine that it has."""

    since: Time
    """When its launch was refused, or its machine could not begin it, for the first time."""
    until: Time
    """When it gives up: a refusal after that ends the job."""
    why: str
    """Why it was refused at first, with what to do where its machine cannot begin it."""


class JobExit(TypedDict):
    """How a job ended."""

    status: int | None
    """The command's own exit status, 128 + N after signal N; null where it is not known."""
    signal: int | None
    """The signal that ended the command; null for none."""
    code: int
    """What `run` exits with."""
    by: By
    """`command`: it ended by itself. `cloudgpu`: it was ended, or never began."""


class JobResults(TypedDict):
    """The results that were fetched."""

    directory: str
    """Where they are."""
    host: str
    """On which computer; empty: in a bucket, or on a volume."""
    files: int
    """How many files."""
    bytes: int
    """Their size."""
    whole: bool
    """All of them: sizes and hashes agree with those on the machine."""
    why: str
    """Why they are not complete; of complete ones, what was not copied, such as links out of their directory."""
    at: Time
    """When they were fetched."""


class JobDeadline(TypedDict):
    """The deadline of a job, and the policy that chooses between spot and on demand."""

    at: Time
    """When that is."""
    work_s: int
    """How long its command runs, if nothing interrupts it, in seconds."""
    policy: str
    """The policy that chooses between spot and on demand."""
    market: str | None
    """The market on which it runs, or is to run: `spot` or `on_demand`; null: it waits."""
    saved_s: float
    """How many seconds of the work the newest copied checkpoint contains."""


class JobSlurm(TypedDict):
    """A job in Slurm."""

    id: str
    """Slurm's id of it."""
    cluster: str | None
    """The cluster; null: somebody else's Slurm."""
    nodes: int
    """How many nodes it takes."""
    states: list[str]
    """The states that were last seen, each once: PENDING, RUNNING, COMPLETED, ..."""
    reason: str | None
    """Why it waits in Slurm's queue, in Slurm's own word: Resources, Priority, ...; null: it does not wait."""
    tariff_usd: Usd | None
    """What somebody else's Slurm charges for it, by `usd_per_gpu_hour`; it is in `spent_usd`. Null: nothing."""


class JobDocument(TypedDict):
    """One job."""

    id: str
    """Its id."""
    name: str
    """Its name; unique among living jobs."""
    key: str | None
    """The key it was run with."""
    state: JobState
    """How far it is; from `succeeded` on, its command is over."""
    why: str
    """Why it ended so, what was asked for, or for what it waits in Slurm's queue; empty: there is nothing to say."""
    living: bool
    """Something is left to do for it: to run, to fetch results, to end its machine."""
    command: list[str]
    """The command and its arguments."""
    machine: JobMachine | None
    """Where it runs, or ran last; null before it has a machine."""
    slurm: JobSlurm | None
    """The job in Slurm; null for one that is not in Slurm, or not yet."""
    waits: JobWaits | None
    """Its launch is refused, or its machine cannot begin it, and that is tried again; null: it does not wait so."""
    attempt: int | None
    """The number of the latest attempt; null before the first."""
    attempts: list[JobAttempt]
    """Every one, oldest first."""
    progress: JobProgress | None
    """How far it is; null where its command does not say."""
    spent_usd: Usd
    """Its cost in `cost --by job`: that of its machines; of an existing machine, while the job was alone on it."""
    unpriced: list[str]
    """The resources of its machines without a known price; they are not in `spent_usd`."""
    planned_max_usd: Usd | None
    """The most that it may cost by its plan; null where it may run without end."""
    deadline: JobDeadline | None
    """When it has to be done; null for a job without a deadline."""
    expected_end: Time | None
    """When its command will end at its present pace; null: not known."""
    expected_by: ExpectedBy | None
    """What that is estimated from: its progress, or its `--timeout`."""
    exit: JobExit | None
    """How it ended; null while it runs."""
    results: JobResults | None
    """The results that were fetched; null: none yet."""
    requested_at: Time
    """When it was requested."""
    began_at: Time | None
    """When its command began for the first time."""
    ended_at: Time | None
    """When its command was over."""
    closed_at: Time | None
    """When nothing was left to do for it."""
    kept_until: Time | None
    """Until when its machine is retained after a failure; null: it is not."""
    owner: str
    """Whose it is."""
    project: str
    """The project that it is charged to."""


class JobsDocument(TypedDict):
    """Jobs, the latest last."""

    jobs: list[JobDocument]
    """The living ones; with `--all` every one."""


class CancelDocument(TypedDict):
    """What became of the request to cancel a job."""

    job: JobDocument
    """The job afterwards."""
    was_over: bool
    """Its command was over already; its retained machine, if any, is ended."""
    waits: str | None
    """Why it, or its machine, has not ended yet; null where it has."""


class ExcludedPath(TypedDict):
    """A file or directory that is not copied to the machine."""

    path: str
    """Where it is, in the workdir."""
    bytes: int
    """How large it is; of a large directory, at least."""


class JobData(TypedDict):
    """Data that the machine fetches from a bucket."""

    source: str
    """Where it is."""
    target: str
    """Where the command finds it."""
    objects: int
    """How many objects."""
    bytes: int
    """Their size."""
    region: str | None
    """The region of the bucket; null where its cloud does not say."""
    traffic: str
    """What its transfer to the machine costs, in words; empty where no charge is known."""


class NoticeFit(TypedDict):
    """How much data leaves a spot machine between the notice of an interruption and its end."""

    seconds: int
    """How long before its end the cloud gives the notice."""
    begins_s: int
    """How many seconds of the notice pass at most before a last copy begins, if `run` is in the foreground."""
    bytes_per_s: int
    """How fast it is copied."""
    measured_on: str | None
    """The type of machine on which that was measured; null: it is assumed."""
    fits_bytes: int
    """How much can be copied in the remaining time."""
    last_bytes: int | None
    """The size of the last checkpoint of a job with this name or command; null: none is known."""
    last_of: str | None
    """The job that wrote it."""


class PlannedTraffic(TypedDict):
    """What a job's network traffic to and from its machine costs."""

    received_bytes: int
    """What its machine receives: the copied files, and data from buckets."""
    received_usd: Usd
    """What that costs; 0 where it is free."""
    usd_per_gb_in: Usd | None
    """The price of a GB (10^9 bytes) that the machine receives; null: free."""
    usd_per_gb_out: Usd | None
    """The highest price of a GB that the machine sends; null: free."""
    last_results_bytes: int | None
    """The size of the last results of a job with this name or command; null: none are known."""
    last_results_of: str | None
    """The job that wrote them."""


class JobPlan(TypedDict):
    """A job as planned."""

    name: str
    """Its name."""
    command: list[str]
    """The command and its arguments."""
    machine: str | None
    """The existing machine that is used; null: one is launched."""
    launch: Plan | None
    """The launch of its machine; null for an existing one."""
    files: int
    """How many files are copied to the machine."""
    bytes: int
    """Their size."""
    left_out: list[ExcludedPath]
    """The five largest that are not copied."""
    secrets: list[str]
    """The files that are not copied because their names look like secrets."""
    results: str
    """The directory on this computer to which results are copied, or the bucket or volume that they go to."""
    data: list[JobData]
    """What is fetched from buckets."""
    traffic: PlannedTraffic | None
    """What network traffic costs in addition to `planned_max_usd`; null where it is free."""
    notice: NoticeFit | None
    """What can be copied within the notice of a spot interruption; null if not on spot, or not known."""
    planned_max_usd: Usd | None
    """The most that it may cost; null where it may run without end, or its machine exists already."""


class PlannedJobDocument(TypedDict):
    """What `run` would do."""

    plan: JobPlan | None
    """The new job; null where a living one would be followed instead."""
    existing: JobDocument | None
    """The living job of this name or key; null: there is none."""
