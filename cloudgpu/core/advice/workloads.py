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
class Kind:
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
    sharding_percent: Figure
    bf16_capability: Figure
    oldest_capability: Figure
    most_cards: Figure
    base_machine_usd: Figure
    supply_low_percent: Figure
    supply_high_percent: Figure
    supply_efficiency_percent: Figure
    limit_watts: Figure
    limit_cost_percent: Figure
    circuit_volts: Figure
    circuit_amperes: Figure
    continuous_percent: Figure
    kaggle_hours: Figure
    kaggle_session_hours: Figure


@dataclass(frozen=True, slots=True)
class WorkloadData:
    """All of it: kinds by name, in the order in which they are shown, and remarks by name."""

    kinds: Mapping[str, Kind]
    figures: Figures
    notes: Mapping[str, Note]
