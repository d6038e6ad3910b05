"""What a run is told of machines, and what it decides about them: values, no rules."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.policy import Do, Policy, Rule

if TYPE_CHECKING:
    from cloudgpu.core.activity.idle import Judged
    from cloudgpu.core.clusters.engine import EngineSaid


ACTIVE, IDLE, UNKNOWN = "ACTIVE", "IDLE", "UNKNOWN"
ENDINGS = frozenset({Do.STOP, Do.PARK, Do.TERMINATE, Do.IMAGE, Do.REMOVE})


class Evidence(NamedTuple):
    """Whether a machine is used, why that is thought, and how long ago the last sign of life was (None: none seen).

    `asked`: somebody tried to find out; where nobody had to, UNKNOWN is no news.
    """

    activity: str
    why: str
    quiet: timedelta | None = None
    asked: bool = True


@dataclass(frozen=True, slots=True)
class MachineView:
    """All that is known of a machine when a run decides.

    `policy` None: its name cannot be resolved, `why_policy` says why; then only its lease counts. `judged` None:
    nothing is known of what it does, or it was not asked; `judged_fault` says why where asking failed, and is empty
    where nobody had to ask. `last_active` is its own word that can be read without SSH, `reached_at` when its samples
    were last read; times are aware UTC. `scratch` are (path, bytes used) of disks that a stop erases. `answered`: the
    provider said in this sync what it is; where it did not, `judged_fault` may say why. `engine` is what the engine of
    its cluster said (None: it is not asked here), `whole` what is known of the use of the whole cluster.
    """

    machine: Machine
    policy: Policy | None
    why_policy: str = ""
    judged: Judged | None = None
    last_active: datetime | None = None
    reached_at: datetime | None = None
    scratch: tuple[tuple[str, int], ...] = ()
    answered: bool = True
    judged_fault: str = ""
    engine: EngineSaid | None = None
    whole: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Warned:
    """Something to tell a machine's people: that `rule` ends it at `due` (None: it does not), and why, a sentence."""

    rule: Rule
    due: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Lifted:
    """A warning that holds no more, and why."""

    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one machine, and why: one sentence for people. It is carried out elsewhere.

    `at` is when it will be ended if nothing changes (None: nothing says so); of a renewal, the lease's new end.
    `after` is when a warning has been waited out: an end with an `after` that is still to come, by seconds at most
    (`WAIT_OUT`), is waited for in the run. Whatever is done, `warnings` are to be given and `lifted` ones taken back,
    each as a line. `urgent`: somebody should hear of it now. `cluster` names the one that it is decided of
    as a whole.
    """

    machine: str
    name: str
    do: Do
    rule: Rule
    why: str
    at: datetime | None = None
    after: datetime | None = None
    activity: str = UNKNOWN
    urgent: bool = False
    warnings: tuple[Warned, ...] = ()
    lifted: tuple[Lifted, ...] = ()
    cluster: str = ""

    @property
    def called(self) -> str:
        """What people call what it is decided of: the cluster, or the machine."""
        return self.cluster or self.name

    @property
    def ends(self) -> bool:
        """Whether something is stopped, ended or removed by it."""
        return self.do in ENDINGS
