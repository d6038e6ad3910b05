"""Documents of `jobs`, `cancel`, `show` for a job, and of what the library plans."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.core.jobs.job import State as _State
from cloudgpu.views.documents.machines.plans import Plan
from cloudgpu.views.documents.parts import Market, State, Time, Usd

JobState = Annotated[str, _State]
By = Annotated[str, Literal["command", "cloudgpu"]]
ExpectedBy = Annotated[str, Literal["progress", "timeout"]]


class JobMachine(TypedDict):
    """The machine that a job runs on, or ran on last."""

    id: str
    """Its id in cloudgpu."""
    name: str
    """Its name."""
    state: State
    """As last seen."""
    provider: str
    """Its provider."""
    account: str
    """Its account."""
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
    """Names of a gang's nodes, also of those that were ended because others were refused; empty for one machine."""
    placed_at: Time
    """When it was decided."""
    began_at: Time | None
    """When the command began, by the machine's clock; null: it has not."""
    setup_s: float | None
    """Seconds that the setup took; null without one."""
    ended_at: Time | None
    """When it ended; null while it runs."""
    interrupted: bool
    """Its machine went away."""
    status: int | None
    """The command's exit status; null where it is not known."""
    why: str
    """Why it ended; empty while it runs."""


class JobProgress(TypedDict):
    """How far a job is, as its command wrote."""

    done: float
    """What is done."""
    of: float | None
    """Of how much; null: the command does not say."""
    percent: float | None
    """From 0 to 100; null where `of` is."""
    at: Time
    """When that was read."""


class JobWaits(TypedDict):
    """What a job waits for that has not begun: a machine, or room on the machine that it has."""

    since: Time
    """When its launch was refused, or its machine could not begin it, for the first time."""
    until: Time
    """When it gives up: what is refused then ends it."""
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
    """The results that came back."""

    directory: str
    """Where they are."""
    host: str
    """On which computer; empty: in a bucket, or on a volume."""
    files: int
    """How many files."""
    bytes: int
    """Their size."""
    whole: bool
    """Sizes and hashes agree with what the machine had."""
    why: str
    """Why they are not whole; empty where they are."""
    at: Time
    """When they came."""


class JobDeadline(TypedDict):
    """When a job has to be done, and how that is made cheap."""

    at: Time
    """When that is."""
    work_s: int
    """How long its command runs, if nothing interrupts it, in seconds."""
    policy: str
    """What chooses between spot and on demand."""
    market: str | None
    """Where it runs, or is to run: `spot` or `on_demand`; null: it waits."""
    saved_s: float
    """How much of the work the newest copy of a checkpoint holds, in seconds."""


class JobSlurm(TypedDict):
    """Where a job is in Slurm."""

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
    """What somebody else's Slurm asks for it by `usd_per_gpu_hour`; it is in `spent_usd`. Null: nothing."""


class JobDocument(TypedDict):
    """One job."""

    id: str
    """Its id."""
    name: str
    """Its name; unique among jobs that live."""
    key: str | None
    """The key it was run with."""
    state: JobState
    """How far it is; from `succeeded` on, its command is over."""
    why: str
    """Why it ended so, what was asked for, or for what it waits in Slurm's queue; empty: there is nothing to say."""
    living: bool
    """Something is left to do for it: to run, to bring back results, to end its machine."""
    command: list[str]
    """Its words."""
    machine: JobMachine | None
    """Where it runs, or ran last; null before it has a machine."""
    slurm: JobSlurm | None
    """Where it is in Slurm; null for a job that is not, or not yet."""
    waits: JobWaits | None
    """Its launch is refused, or its machine cannot begin it, and that is tried again; null: it does not wait so."""
    attempt: int | None
    """The number of the latest attempt; null before the first."""
    attempts: list[JobAttempt]
    """Every one, oldest first."""
    progress: JobProgress | None
    """How far it is; null where its command does not say."""
    spent_usd: Usd
    """Its row of `cost --by job`: what its machines have cost; of one that was there, while it was alone on it."""
    unpriced: list[str]
    """What of its machines has no known price, and is not in `spent_usd`."""
    planned_max_usd: Usd | None
    """The most that it may cost by its plan; null where that has no end."""
    deadline: JobDeadline | None
    """When it has to be done; null for a job without a deadline."""
    expected_end: Time | None
    """When its command will end, if it goes on as it does; null: nobody can say."""
    expected_by: ExpectedBy | None
    """What that is reckoned from: its progress, or its `--timeout`."""
    exit: JobExit | None
    """How it ended; null while it runs."""
    results: JobResults | None
    """What came back; null: nothing yet."""
    requested_at: Time
    """When it was asked for."""
    began_at: Time | None
    """When its command began for the first time."""
    ended_at: Time | None
    """When its command was over."""
    closed_at: Time | None
    """When nothing was left to do for it."""
    kept_until: Time | None
    """Until when its machine is kept after a failure; null: it is not."""
    owner: str
    """Whose it is."""
    project: str
    """The project that it is charged to."""


class JobsDocument(TypedDict):
    """Jobs, the latest last."""

    jobs: list[JobDocument]
    """Those that live; with `--all` every one."""


class CancelDocument(TypedDict):
    """What became of the wish to end a job."""

    job: JobDocument
    """As it stands then."""
    was_over: bool
    """Its command was over already; a machine that it had left is ended."""
    waits: str | None
    """Why it, or its machine, has not ended yet; null where it has."""


class StaysHere(TypedDict):
    """A file or directory that does not travel."""

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
    """What its way to the machine costs, in words; empty where nothing is known to be charged."""


class NoticeFit(TypedDict):
    """What still leaves a spot machine between its notice and its end."""

    seconds: int
    """How long before its end the cloud says so."""
    begins_s: int
    """How many of these pass, at worst, until a last copy begins, where `run` is in front."""
    bytes_per_s: int
    """How fast it is copied."""
    measured_on: str | None
    """The type of machine on which that was measured; null: it is assumed."""
    fits_bytes: int
    """How much is copied in the rest."""
    last_bytes: int | None
    """How large the last checkpoint of this job's name, or command, was; null: none is known."""
    last_of: str | None
    """The job that wrote it."""


class PlannedTraffic(TypedDict):
    """What a job's bytes cost that travel to its machine and from it."""

    received_bytes: int
    """What its machine receives: the files that travel, and data from buckets."""
    received_usd: Usd
    """What that costs; 0 where it is free."""
    usd_per_gb_in: Usd | None
    """What a GB (10^9 bytes) costs that the machine receives; null: nothing."""
    usd_per_gb_out: Usd | None
    """What a GB costs that leaves it, at most; null: nothing."""
    last_results_bytes: int | None
    """How large the last results of this name, or command, were; null: none are known."""
    last_results_of: str | None
    """The job that wrote them."""


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
    """The directory on this computer to which results come back, or the bucket or volume that they go to."""
    data: list[JobData]
    """What is fetched from buckets."""
    traffic: PlannedTraffic | None
    """What the bytes cost that travel, in addition to `planned_max_usd`; null where its place charges for none."""
    notice: NoticeFit | None
    """What fits the notice of a spot machine; null for another one, and where the notice is not known."""
    planned_max_usd: Usd | None
    """The most that it may cost; null where that has no end, or its machine is there."""


class PlannedJobDocument(TypedDict):
    """What `run` would do."""

    plan: JobPlan | None
    """The new job; null where one that lives would be followed instead."""
    existing: JobDocument | None
    """The job of this name or key that lives; null: there is none."""
