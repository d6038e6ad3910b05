"""What a provider may be able to do with several machines at once: launch, stop, and take away what they share.

Who has the methods of a protocol has the ability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from cloudgpu.core.model.instances import Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import CloudgpuError


@runtime_checkable
class LaunchesTogether(Protocol):
    """Launches the nodes of a cluster with one call of its cloud's own: all of them or none."""

    def launch_together(self, attempts: Sequence[Attempt], *, deadline: datetime) -> Sequence[Instance]:
        """Ask for all machines at once, and return them in the order of `attempts` once the cloud has accepted them.

        The attempts differ in machine, token, key, name and tags alone; `cluster.shared_tags` are what one call can
        give all of them, and `get` and `list` show each with its own. Idempotent on the first attempt's token: the same
        call again returns the same machines. Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest when surely
        none was made; LaunchUncertain (or any other ProviderUnavailable) when that is not known.
        """


@runtime_checkable
class ClearsShared(Protocol):
    """The nodes of a cluster share something that costs nothing and is no node's own: a network, a group, a rule.

    A launch makes it, whether of one node or of all in one call; a replay makes none twice. It lets the nodes reach
    each other, and nobody else. `HasOrphans` tells of it under the id of node 0, in use as long as a node uses it.
    """

    def clear_shared(self, cluster: str, region: str) -> bool:
        """Ask to take away what the launch of a cluster (`ClusterNode.id`) made beside its machines and disks there.

        Return whether a look found none of it: call it again until then. What a machine uses stays. Idempotent.
        """


@runtime_checkable
class BulkStop(Protocol):
    """Many machines can be asked about, and stopped, in few calls. One that cannot be keeps no other one running."""

    def stop_many(self, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
        """Ask to stop these, as `Pausable.stop` does; return why not, by id, for those that surely were not asked.

        In as few calls as there can be; a call that is refused for one of them is halved until that one is alone. A
        machine that is stopped already, or stopping, is fine; one that is still starting may be refused. Raises nothing
        but defects: where nothing is known of a part, its ids have that error. The proof is a later look.
        """

    def get_many(self, ids: Sequence[str]) -> Mapping[str, Instance | CloudgpuError]:
        """Return each machine now, or the error that `get` would raise for it: InstanceNotFound, say. Raises nothing.

        In as few calls as there can be: at most one per region and 1000 ids, where all of them are there.
        """
