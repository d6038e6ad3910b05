"""Documents of verbs about a cluster: `show`, `stop`, `start`, `extend` and `hold`."""

from cloudgpu.views.documents.machines.machines import ClusterDocument, MachineDocument, ShownDocument
from cloudgpu.views.documents.parts import Fault


class ClusterMachinesDocument(ClusterDocument):
    """A cluster with its machines: the answer of a verb that has changed all of them."""

    machines: list[MachineDocument]
    """Its nodes, in order."""
    failed: list[Fault]
    """A fault for each node with which it failed; the exit code is that of the gravest."""


class ShownClusterDocument(ClusterDocument, ShownDocument):
    """A cluster, if `show` is given its name; each of its nodes has what the options ask for."""

    machines: list[ShownDocument]
    """Its nodes, in order."""
