"""The part of the document of `estimate` that is about several machines as one cluster."""

from typing import TypedDict


class GangChance(TypedDict):
    """How likely a gang of spot machines loses one, so that all start again."""

    per: str
    """`hour` or `month`: the time that the chances are for."""
    one_least: float
    """The chance that one machine is taken, at least."""
    one_most: float
    """At most."""
    any_least: float
    """The chance that any of them is taken, at least."""
    any_most: float
    """At most."""
    source: str
    """Where the chance of one machine is from."""


class NodesWorth(TypedDict):
    """What several machines of a type are worth together."""

    provider: str | None
    """`aws`, `gcp` or `azure`; null: machines of your own."""
    region: str | None
    """The region of the estimate."""
    instance_type: str | None
    """Its name there; null: machines of your own."""
    gpu: str
    """Its GPU."""
    network_gbit_per_s: float | None
    """What one machine can send; null: not known."""
    network_up_to_gbit_per_s: float | None
    """What it can send for a while; null: no more."""
    network_fabric: str | None
    """`Ethernet`, or what has to be set up for it: `EFA`, `InfiniBand`, `RDMA`, `GPUDirect`. Null: not known."""
    network_note: str | None
    """What else the list says of it."""
    network_source: str | None
    """Where the figure is from, with its date; null: `--network`, or not known."""
    compute_s: float | None
    """Seconds of computing in a step; null: the peak of the GPU is not known."""
    traffic_s: float | None
    """Seconds of sending in a step, if nothing hides them; null: not known."""
    speed_up: float | None
    """How many times one machine they are, with overlap."""
    speed_up_without_overlap: float | None
    """How many times one machine they are, without it."""
    cost_factor: float | None
    """How many times as much as on one machine each result costs."""
    hiding_gbit_per_s: float | None
    """The network from which on computing hides all sending."""
    verdict: str | None
    """`slower` (than one machine), `poor` (below 0.8 times their number), `good`; null: not known."""
    says: str
    """The verdict as a sentence, or what is missing."""
    spot_loss: GangChance | None
    """With `--spot`: the chance to lose a machine; null: not known, or not on spot."""


class NodesDocument(TypedDict):
    """Whether several machines are worth it."""

    nodes: int
    """How many machines."""
    parameters: float
    """Parameters of the model."""
    trainable: float
    """How many of them are trained."""
    tokens: float
    """Tokens per GPU and step."""
    gradient_bytes: int
    """Bytes of a gradient, in bf16."""
    efficiency: float
    """The part of a GPU's peak that is reached."""
    network_used: float
    """The part of a network that is reached."""
    worth: list[NodesWorth]
    """One for each of `estimates`, in their order; without any, one for your own machines."""
    assumptions: list[str]
    """What the figures rest on."""
