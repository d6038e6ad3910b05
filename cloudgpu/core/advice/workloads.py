"""What a recommendation is computed from: kinds of work, figures and remarks, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from fractions import Fraction

from cloudgpu.core.catalog.gpus import Workload

KAGGLE_GPU, KAGGLE_GPUS = "T4", 2  # of a Kaggle notebook; today's frameworks do not support its P100


class SourceQuality(StrEnum):
    """How far a figure can be trusted."""

    PUBLISHED = "published"  # stands in the text that is named, as it was read, or as others quote it
    DERIVED = "derived"  # computed from published figures
    UNVERIFIED = "unverified"  # from memory of that text
    ASSUMED = "assumed"  # ours


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a figure, its date, and how far it can be trusted."""

    text: str
    as_of: date
    quality: SourceQuality


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its source. Its unit stands in the name of the field that holds it."""

    value: Fraction
    source: Source


@dataclass(frozen=True, slots=True)
class Note:
    """A remark for people, with its source."""

    text: str
    source: Source


@dataclass(frozen=True, slots=True)
class WorkKind:
    """A kind of work. `memory_gib` is what it takes per GPU; None where that follows from a model's parameters."""

    name: str
    title: str
    memory_gib: Fraction | None
    speed_workload: Workload
    source: Source
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers of the rules, from policies/work/work.yaml; percentages are of what the comments say."""

    mixed_optimizer_bytes: Figure  # per trained parameter, in mixed precision with Adam
    full_optimizer_bytes: Figure  # the same, in 32 bits
    quantized_bits: Figure  # per 4-bit weight, with its constants
    adapter_percent: Figure  # of the parameters, that LoRA trains
    activation_percent: Figure  # of weights, gradients and optimizer
    framework_gib: Figure  # CUDA and the framework, on each GPU
    inference_percent: Figure  # of the weights: keys, values and the rest
    sharding_percent: Figure  # more communication where weights, gradients and optimizer are split over GPUs
    bf16_capability: Figure  # compute capability from which on bfloat16 is computed in hardware
    oldest_capability: Figure  # compute capability below which a GPU is not recommended
    most_cards: Figure  # in one desktop
    base_machine_usd: Figure  # a desktop without its cards
    supply_low_percent: Figure  # by how much a power supply's rating exceeds the sum of the parts, at least
    supply_high_percent: Figure  # the same, at most
    supply_efficiency_percent: Figure  # of what a power supply draws from the wall: what it gives to the parts
    limit_watts: Figure  # by how much a card's power limit is lowered
    limit_cost_percent: Figure  # how much speed that costs
    circuit_volts: Figure  # of a household circuit in the USA
    circuit_amperes: Figure  # its breaker
    continuous_percent: Figure  # of the breaker, what the circuit carries for three hours and more
    kaggle_hours: Figure  # of free GPUs a week
    kaggle_session_hours: Figure  # of these at most without a break


@dataclass(frozen=True, slots=True)
class WorkloadData:
    """All of it: kinds by name, in the order in which they are shown, and remarks by name."""

    kinds: Mapping[str, WorkKind]
    figures: Figures
    notes: Mapping[str, Note]
