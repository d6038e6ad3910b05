"""Whether several machines are faster than one, by published formulas, and how likely a spot cluster loses a machine.

The formulas are for data parallel training, which sends every gradient once a step: 6ND for computing (Kaplan et al.,
2020, arXiv:2001.08361), and a ring all-reduce for sending (NVIDIA, nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import expm1

from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import from_iso

TOKENS = 8192  # per GPU and step, by default
PEAK_EFFICIENCY = 0.4  # of a GPU's dense peak (MFU)
NETWORK_EFFICIENCY = 0.8  # 340 of 400 Gbit/s were measured with EFA (stas00/ml-engineering, network)
GRADIENT_BYTES = 2  # bf16
POOR_EFFICIENCY = 0.8  # speed-up per machine, below which each result costs a quarter more or worse
BITS, GIGA, TERA = 8, 1e9, 1e12


class Verdict(StrEnum):
    """How several machines compare with one."""

    SLOWER = "slower"  # than one machine
    POOR = "poor"  # faster, by less than 0.8 times their number
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class TypeNetwork:
    """The sustained network bandwidth of one machine of a type, in Gbit/s; `burst_gbit` is that of bursts, if higher.

    `fabric` is `Ethernet`, or what has to be set up before it is as fast as that: `EFA`, `InfiniBand`, `RDMA`.
    """

    gbit: float
    burst_gbit: float | None
    fabric: str
    note: str
    source: str
    as_of: str

    @property
    def is_unverified(self) -> bool:
        """Whether the figure is from memory."""
        return "recalled" in self.note or "recalled" in self.source


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained: a model's parameters, how many of them are trained, and tokens per GPU and step."""

    parameters: float
    trained_parameters: float
    tokens: float = TOKENS

    @property
    def flops(self) -> float:
        """The operations of one GPU in a step: 6ND where all parameters are trained.

        Of these six, two are the forward pass, two the gradients of activations, and two those of trained parameters.
        """
        return (4 * self.parameters + 2 * self.trained_parameters) * self.tokens

    @property
    def backward_share(self) -> float:
        """The share of a step that is the backward pass, in which gradients are sent: two thirds if all are trained."""
        return (2 * self.parameters + 2 * self.trained_parameters) / (4 * self.parameters + 2 * self.trained_parameters)


@dataclass(frozen=True, slots=True)
class ScalingEstimate:
    """One training step on several machines: seconds of computing, of traffic, and of traffic that overlaps with it."""

    nodes: int
    gbit: float
    compute_s: float
    traffic_s: float
    hidden_s: float

    @property
    def speed_up(self) -> float:
        """How many times as fast as one machine they are if traffic overlaps with the backward pass."""
        return self.nodes * self.compute_s / (self.compute_s + max(0.0, self.traffic_s - self.hidden_s))

    @property
    def without_overlap(self) -> float:
        """How many times as fast as one machine they are if gradients are sent after the backward pass."""
        return self.nodes * self.compute_s / (self.compute_s + self.traffic_s)

    @property
    def cost_factor(self) -> float:
        """How many times as much as on one machine each result costs."""
        return self.nodes / self.speed_up

    @property
    def gbit_to_hide_traffic(self) -> float:
        """The Gbit/s of one machine from which on computing hides all sending."""
        return self.gbit * self.traffic_s / self.hidden_s

    @property
    def verdict(self) -> Verdict:
        """Whether they are faster than one machine, and enough so."""
        if self.speed_up <= 1:
            return Verdict.SLOWER
        return Verdict.POOR if self.speed_up < POOR_EFFICIENCY * self.nodes else Verdict.GOOD


def scaling_estimate(
    training: Training, nodes: int, peak_tflops: float, gbit: float, *, used_of_peak: float = PEAK_EFFICIENCY
) -> ScalingEstimate:
    """Return the speed-up of `nodes` machines with `gbit` Gbit/s each, and GPUs of this dense peak.

    The traffic is a lower bound: GPUs without NVLink also send inside a machine, and ZeRO-3 or FSDP sends half as much
    again. Raises ValueError for a figure that is not above zero, and for fewer than two machines.
    """
    if nodes < 2 or min(training.trained_parameters, training.tokens, peak_tflops, gbit, used_of_peak) <= 0:  # noqa: PLR2004
        raise ValueError("two machines or more, and figures above zero")
    compute = training.flops / (peak_tflops * TERA * used_of_peak)
    sent = training.trained_parameters * GRADIENT_BYTES * BITS * 2 * (nodes - 1) / nodes
    return ScalingEstimate(
        nodes, gbit, compute, sent / (gbit * GIGA * NETWORK_EFFICIENCY), training.backward_share * compute
    )


@dataclass(frozen=True, slots=True)
class GangLoss:
    """The chance that at least one of `nodes` spot machines is interrupted within an `hour` or `month` (`per`).

    `machine_chance` is the chance of one machine, as (least, most): equal for one figure; most is 1 if the source has
    no upper end.
    """

    nodes: int
    per: str
    machine_chance: tuple[float, float]
    source: str

    @property
    def chance(self) -> tuple[float, float]:
        """The chance for all of them, as (least, most)."""
        return gang_loss(self.machine_chance[0], self.nodes), gang_loss(self.machine_chance[1], self.nodes)


def gang_loss(machine_chance: float, nodes: int) -> float:
    """Return the chance to lose at least one of `nodes` machines, each lost with chance `machine_chance`: 1-(1-p)^N.

    Machines of one zone are often taken together, so the truth lies between that and the chance of one.
    """
    return 1 - (1 - machine_chance) ** nodes


def spot_losses(machines: Iterable[Machine], instance_type: str) -> tuple[int, float]:
    """Return how many spot machines of a type were interrupted, and the total hours that all ended ones had run."""
    spot_machines = [
        machine for machine in machines if machine.market == "spot" and machine.instance_type == instance_type
    ]
    spans = [(one, one.launched_at, one.interrupted_at or one.terminated_at) for one in spot_machines]
    known = [(one, from_iso(begun), from_iso(end)) for one, begun, end in spans if begun and end]
    hours = sum(max(0.0, (end - begun).total_seconds()) for _, begun, end in known) / 3600
    return sum(one.interrupted_at is not None for one, _, _ in known), hours


def loss_an_hour(lost: int, hours: float) -> float:
    """Return the chance to lose a machine within an hour, if `lost` ones were taken in `hours` machine-hours."""
    return -expm1(-lost / hours)


def worth_sentence(scaling: ScalingEstimate, what: str = "") -> str:
    """Return in a sentence or two how several machines compare with one.

    `what` is text after the word machines.
    """
    times = f"{scaling.nodes} machines{what} are {figure(scaling.speed_up)} times as fast as one"
    each = f"each result costs {figure(scaling.cost_factor)} times as much"
    hint = f"{figure(scaling.gbit_to_hide_traffic)} Gbit/s would hide the traffic."
    if scaling.verdict is Verdict.SLOWER:
        return f"Slower than one machine: {times}, and {each}. {hint}"
    if scaling.verdict is Verdict.POOR:
        return f"Poor: {times}, and {each}. {hint}"
    return f"{times} ({figure(scaling.without_overlap)} without overlap), and {each}."


def plan_remark(nodes: int, kind: str, peak_tflops: float | None, network: TypeNetwork | None) -> str:
    """Return what the plan of a cluster says of its speed, for any model: computing and traffic grow alike.

    `kind` is the instance type. Where its network or its GPU's peak is not known, the remark says so.
    """
    hint = f"cloudgpu estimate --nodes {nodes} --instance-type {kind} --params 7B"
    if network is None or peak_tflops is None:
        missing, option = ("network", " --network GBIT") if network is None else ("GPU's peak", "")
        return (
            f"Whether {nodes} machines are worth it is not known: the {missing} of {kind} is in no list. {hint}{option}"
        )
    scaling = scaling_estimate(Training(1e9, 1e9), nodes, peak_tflops, network.gbit)
    assumption = f"training with {TOKENS:,} tokens per GPU and step over {network.gbit:g} Gbit/s"
    return f"{worth_sentence(scaling)} That is for {assumption}. Other figures: {hint}"


def gang_sentence(loss: GangLoss) -> str:
    """Return how likely a spot cluster loses a machine, with the source."""
    of_one, of_all = (_between(pair) for pair in (loss.machine_chance, loss.chance))
    return (
        f"Any loss restarts all {loss.nodes}: the chance is {of_all} in each {loss.per}, with {of_one} for one machine "
        f"({loss.source})."
    )


def _between(pair: tuple[float, float]) -> str:
    low, high = pair
    if low == high:
        return f"{low:.1%}"
    if low == 0:
        return f"at most {high:.0%}"
    return f"at least {low:.0%}" if high >= 1 else f"{low:.0%} to {high:.0%}"


def figure(number: float) -> str:
    """Return a number for people: two decimal places below 10, none above."""
    return f"{number:.2f}" if number < 10 else f"{number:,.0f}"  # noqa: PLR2004
