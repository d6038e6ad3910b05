"""Documents of `cp`, `tunnel`, `allow`, `share`, and of the library's measurement of a network."""

from typing import Annotated, TypedDict

from cloudgpu.views.documents.parts import Fault, NetworkFigures, OfMachine


class TunnelDocument(OfMachine):
    """A tunnel to Jupyter."""

    port: int
    """The local port."""
    url: str
    """The address of Jupyter, with its token: keep it to yourself."""
    started: bool
    """Jupyter was started by this call."""
    background: bool
    """The tunnel keeps running without this process."""
    pid: int
    """The process that holds the tunnel."""


class ClosedTunnelDocument(OfMachine):
    """The end of a tunnel in the background."""

    stopped: bool
    """There was a tunnel in the background, and it is closed."""


class CopyDocument(TypedDict):
    """What was copied."""

    files: int
    """How many were copied."""
    bytes: int
    """Their size."""
    skipped: list[str]
    """What was left out: neither file nor directory, or a link that leads nowhere."""
    failed: list[Fault]
    """Paths that could not be copied; the others were. Exit code 2 then."""


class SshRule(OfMachine):
    """A machine whose firewall rule lets you in."""

    provider: str
    """Its provider."""
    before: str | None
    """The network that the rule let in before."""
    changed: bool
    """The rule was changed."""


class SkippedMachine(OfMachine):
    """A machine that was not changed."""

    why: str
    """Why it has no rule that could be changed."""


# A key that is a keyword of Python, which no class can declare.
_AllowDocumentKeywords = TypedDict(
    "_AllowDocumentKeywords",
    {
        "from": Annotated[str | None, "The network that SSH is open to now; null where no machine has such a rule."],
    },
)


class AllowDocument(_AllowDocumentKeywords):
    """From where SSH is open to you."""

    machines: list[SshRule]
    """Machines whose firewall rule lets you in now."""
    skipped: list[SkippedMachine]
    """Machines that were not changed."""
    failed: list[Fault]
    """Errors of machines whose rule could not be changed."""


# A key that is a keyword of Python, which no class can declare.
_ShareDocumentKeywords = TypedDict(
    "_ShareDocumentKeywords",
    {
        "from": Annotated[
            str | None, "The network that it was let in from; null where a key is enough, and when taken out."
        ],
    },
)


class ShareDocument(OfMachine, _ShareDocumentKeywords):
    """A key that was let in, or taken out."""

    shared: bool
    """Keys were let in (`false`: taken out, with `--remove`)."""
    changed: bool
    """Something changed."""
    key: str | None
    """The key's fingerprint, as `ssh-keygen -l` shows it; null for every shared key."""
    ssh: str | None
    """The command that the key's owner types."""
    host_key: str | None
    """The machine's host key, for the known_hosts of the key's owner."""


class NetworkBenchDocument(NetworkFigures):
    """What a network between machines did, compared with what was expected."""

    sender: str
    """The machine that sent; with nccl-tests, the cluster."""
    receiver: str | None
    """The machine that received; null: all nodes took part."""
    address: str | None
    """The receiver's address; null with nccl-tests."""
    program: str
    """What measured: iperf3 with its version, or the program of nccl-tests."""
    seconds: float | None
    """For how long it was measured; null: as long as the program took."""
    gbit_per_s: float
    """What one machine sent."""
    expected_gbit_per_s: float | None
    """0.8 times what the network can do, by the type or `--expected`; null: not known."""
    poor: bool | None
    """`gbit_per_s` is less than 0.8 times `expected_gbit_per_s`; null: that is not known."""
