"""Parses the options of `estimate`, from the command line or the library: machines, duration, work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Unpack

from cloudgpu.config.settings import Settings
from cloudgpu.control.catalog.market import Filters, parse_filters
from cloudgpu.control.inputs.periods import CurrencyOptions, parse_currency
from cloudgpu.core.advice.desktop import Committed, Term
from cloudgpu.core.advice.estimate import ComputePrecision, WeeklyHours
from cloudgpu.core.advice.numbers import Number, parse_count, parse_decimal, parse_whole_number
from cloudgpu.core.catalog.gpus import Workload
from cloudgpu.core.clusters.scaling import PEAK_EFFICIENCY, TOKENS, Training
from cloudgpu.core.model.cluster import MAX_NODES
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.typed import check_keywords, parse_member
from cloudgpu.errors import InvalidRequest

MAX_MACHINES = 1000
MAX_DISK_GB = 65_536  # of the largest disk of any cloud
DEFAULT_DISK_GB = 100
EFFICIENCY = (Fraction("0.5"), Fraction("0.3"), Fraction("0.2"))  # the best, the expected, the worst


class Address(StrEnum):
    """What kind of public address a machine has."""

    EPHEMERAL = "ephemeral"  # while it runs
    STATIC = "static"
    NONE = "none"


class EstimateOptions(CurrencyOptions, total=False):
    """The options of `estimate`, parsed as on the command line. None: left out."""

    gpu: str | None  # "v100" or "a100-80gb:8"
    instance_type: str | None  # "g6.xlarge"
    number: Number  # of machines
    spot: bool
    provider: str | None
    region: str | None
    trust: str | None  # "cloud", "datacenter" or "community"
    disk_type: str | Sequence[str] | None  # "gp3"; several: one for each cloud
    disk: Number | None  # GB, of each machine
    address: str  # "ephemeral", "static" or "none"
    committed: str | None  # "1y", "3y" or a percentage
    hours_per_day: Number | None
    days_per_week: Number | None
    hours: Number | None  # of the machines in all, the same on every GPU
    flops: Number | None  # floating point operations in all
    precision: str | None  # "fp16", "bf16"
    efficiency: Number | None  # the part of a GPU's peak that is reached: "30%", 0.3
    like: str | None  # the name of a past machine that did the same work
    work: str | None  # "training", "inference"
    nodes: Number | None  # of a cluster
    params: Number | None  # "7B", 7_000_000_000
    trainable: Number | None  # how many of the parameters are trained, "40M"
    tokens: Number | None  # per GPU and step
    network: Number | None  # Gbit/s
    spot_loss: Number | None  # the chance that a node is interrupted in an hour: "5%"
    all: bool  # every machine type, one row each, also those that can hardly be launched any more


@dataclass(frozen=True, slots=True)
class Flops:
    """Work as a number of floating point operations. `efficiency` is the best, expected and worst share of the peak."""

    operations: Fraction
    precision: ComputePrecision
    efficiency: tuple[Fraction, Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class NodesQuery:
    """The cluster of an estimate. `used_of_peak` is the part of a GPU's peak that training reaches.

    `spot_loss` is the chance that a node is interrupted in an hour; None: not typed.
    """

    nodes: int
    training: Training
    used_of_peak: float
    network_gbit: float | None
    spot_loss: float | None


@dataclass(frozen=True, slots=True)
class EstimateQuery:
    """The parsed request of `estimate`.

    At most one of these says how long a job is: `like` names a past machine that did it, `flops` is its number of
    operations, `total_hours` is its time on any GPU. With `nodes`, `machine_count` is the number of nodes.
    `disks` are the requested kinds of disk, `hours` is when the machines run in a week.
    """

    filters: Filters
    type: str | None
    machine_count: int
    disks: tuple[str, ...]
    disk_gb: int
    address: Address
    committed: Committed | None
    hours: WeeklyHours
    flops: Flops | None
    like: str | None
    work: Workload
    one_row_per_type: bool
    currency: Currency | None
    nodes: NodesQuery | None = None
    total_hours: Fraction | None = None

    @property
    def is_one_job(self) -> bool:
        """Whether the machines run for one job, which has a total cost, and not for an unlimited time."""
        return self.flops is not None or self.like is not None or self.total_hours is not None


def parse_estimate(settings: Settings, now: datetime, **options: Unpack[EstimateOptions]) -> EstimateQuery:
    """Return the request of these options. Raises InvalidRequest that names the invalid option."""
    check_keywords("estimate", options, EstimateOptions.__annotations__)
    _check_combinations(options)
    spot, one_row_per_type = bool(options.get("spot")), bool(options.get("all"))
    filters = (options.get("gpu"), None, None, options.get("provider"), options.get("region"))
    nodes, number = _nodes(options), options.get("number", 1)
    machine_count = nodes.nodes if nodes else parse_whole_number(number, "--number", 1, MAX_MACHINES)
    return EstimateQuery(
        filters=parse_filters(*filters, spot=spot, with_legacy=one_row_per_type, trust=options.get("trust")),
        type=options.get("instance_type"),
        machine_count=machine_count,
        disks=_disks(options.get("disk_type")),
        disk_gb=parse_whole_number(_default_to(options.get("disk"), DEFAULT_DISK_GB), "--disk", 0, MAX_DISK_GB),
        address=parse_member(
            Address, str(_default_to(options.get("address"), Address.EPHEMERAL)), "value of --address", "--address"
        ),
        committed=None if options.get("committed") is None else _parse_committed(str(options.get("committed"))),
        hours=_weekly_hours(options),
        flops=_flops(options),
        like=options.get("like"),
        work=parse_member(
            Workload, str(_default_to(options.get("work"), Workload.TRAINING)), "value of --work", "--work"
        ),
        one_row_per_type=one_row_per_type,
        currency=parse_currency(settings, now, options),
        nodes=nodes,
        total_hours=_total_hours(options),
    )


def _check_combinations(options: EstimateOptions) -> None:
    """Raise InvalidRequest for two options that exclude each other, and for one that needs another."""
    present = {name for name, value in options.items() if value is not None and value is not False}
    present -= {"number"} if str(options.get("number")) == "1" else set()  # the command line always passes it
    for name, other_name, text, remedy in _MUTUALLY_EXCLUSIVE:
        if {name, other_name} <= present:
            raise _option_error(options, name, text, remedy)
    for name, needed_names, text, remedy in _REQUIRES:
        if name in present and not present & {*needed_names.split()}:
            raise _option_error(options, name, text, remedy)


_DROP_ONE = "Leave out one of them."
_FINITE_WORK = ("A commitment is paid for its whole term, and this work ends.", "Leave out --committed, or the work.")
_ADD_FLOPS = "Add --flops, for example --flops 1e21."
# Two options that exclude each other, the message, and its remedy.
_MUTUALLY_EXCLUSIVE = (
    ("instance_type", "gpu", "A type says which GPUs it has, so --gpu says it twice.", _DROP_ONE),
    ("like", "flops", "--flops and --like both say what the work is.", _DROP_ONE),
    ("hours", "flops", "--hours and --flops both say how much work it is.", _DROP_ONE),
    ("hours", "like", "--hours and --like both say how much work it is.", _DROP_ONE),
    ("committed", "spot", "Nobody commits to spot machines: they are taken away, and their price moves.", _DROP_ONE),
    ("committed", "flops", *_FINITE_WORK),
    ("committed", "like", *_FINITE_WORK),
    ("committed", "hours", *_FINITE_WORK),
    ("number", "nodes", "--number and --nodes both say how many machines.", _DROP_ONE),
    (
        "flops",
        "nodes",
        "--flops assumes that N machines are N times as fast; --nodes estimates how fast they are. Use one.",
        _DROP_ONE,
    ),
    (
        "like",
        "nodes",
        "--like assumes that N machines are N times as fast; --nodes estimates how fast they are. Use one.",
        _DROP_ONE,
    ),
)
_ADD_NODES = "Add --nodes, for example --nodes 4 --params 7B."
# An option, the options of which it needs one, the message, and its remedy.
_REQUIRES = (
    ("nodes", "params", "--nodes depends on what is trained: the size of the model is missing.", "Add --params 7B."),
    ("params", "nodes", "--params needs --nodes.", _ADD_NODES),
    ("trainable", "nodes", "--trainable needs --nodes.", _ADD_NODES),
    ("tokens", "nodes", "--tokens needs --nodes.", _ADD_NODES),
    ("network", "nodes", "--network needs --nodes.", _ADD_NODES),
    ("spot_loss", "nodes", "--spot-loss needs --nodes.", _ADD_NODES),
    ("spot_loss", "spot", "--spot-loss needs --spot.", "Add --spot."),
    ("precision", "flops", "--precision needs --flops.", _ADD_FLOPS),
    ("efficiency", "flops nodes", "--efficiency needs --flops or --nodes.", _ADD_FLOPS),
    (
        "work",
        "like",
        "--work says how GPUs compare with that of --like, and there is none.",
        "Add --like with the name of a machine that did the work before.",
    ),
)


def _option_error(options: EstimateOptions, name: str, text: str, remedy: str) -> InvalidRequest:
    value = str(options[name])  # type: ignore[literal-required]
    return InvalidRequest(text, field=f"--{name.replace('_', '-')}", value=value, next=remedy)


def _default_to(value: Number | None, default: Number) -> Number:
    return default if value is None else value


def _disks(value: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _weekly_hours(options: EstimateOptions) -> WeeklyHours:
    a_day = _parse_number(_default_to(options.get("hours_per_day"), 24), "--hours-per-day", "0.01", "24", "8")
    days = _parse_number(_default_to(options.get("days_per_week"), 7), "--days-per-week", "0.1", "7", "5")
    return WeeklyHours(Fraction(a_day), Fraction(days))


def _total_hours(options: EstimateOptions) -> Fraction | None:
    hours = options.get("hours")
    return None if hours is None else Fraction(_parse_number(hours, "--hours", "0.01", "1000000", "20"))


def _nodes(options: EstimateOptions) -> NodesQuery | None:
    number, network, spot_loss = (options.get("nodes"), options.get("network"), options.get("spot_loss"))
    if number is None:
        return None
    nodes = parse_whole_number(number, "--nodes", 2, MAX_NODES)
    parameters = parse_count(_default_to(options.get("params"), 0), "--params", 10**6, 10**13, "7B")
    trainable = options.get("trainable")
    trained = parameters if trainable is None else parse_count(trainable, "--trainable", 1000, parameters, "40M")
    tokens = parse_count(_default_to(options.get("tokens"), TOKENS), "--tokens", 1, 10**9, str(TOKENS))
    efficiency = options.get("efficiency")
    return NodesQuery(
        nodes,
        Training(parameters, trained, tokens),
        PEAK_EFFICIENCY
        if efficiency is None
        else float(_parse_number(efficiency, "--efficiency", "0.01", "1", "0.4", is_share=True)),
        None if network is None else float(_parse_number(network, "--network", "0.01", "100000", "10")),
        None
        if spot_loss is None
        else float(_parse_number(spot_loss, "--spot-loss", "0.000001", "0.99", "5%", is_share=True)),
    )


def _flops(options: EstimateOptions) -> Flops | None:
    number = options.get("flops")
    if number is None:
        return None
    flops = _parse_number(number, "--flops", "1e9", "1e30", "3.1e20")
    precision_text = str(_default_to(options.get("precision"), ComputePrecision.FP16))
    precision = parse_member(ComputePrecision, precision_text, "value of --precision", "--precision")
    efficiency = options.get("efficiency")
    if efficiency is None:
        return Flops(Fraction(flops), precision, EFFICIENCY)
    fraction = Fraction(_parse_number(efficiency, "--efficiency", "0.01", "1", "0.3", is_share=True))
    return Flops(Fraction(flops), precision, (fraction, fraction, fraction))


def _parse_share(value: Number) -> Decimal | None:
    """Return a share; `30%` is 0.3."""
    if not isinstance(value, str) or not value.endswith("%"):
        return parse_decimal(value)
    percent = parse_decimal(value[:-1])
    return None if percent is None else percent / 100


def _parse_committed(text: str) -> Committed:
    """Return a commitment: a term, at its list price, or the percentage that the user was quoted."""
    if text in list(Term):
        return Committed(Term(text), None)
    remedy = "Write 1y or 3y, or how many percent less you were quoted: --committed 37%"
    percent = parse_decimal(text[:-1]) if text.endswith("%") else None  # 0.37 is refused: it could mean 37%
    if percent is None or not 0 < percent < 100:  # noqa: PLR2004  (percent)
        raise InvalidRequest(
            f"{text!r} is not a commitment: it is 1y, 3y, or a percentage above 0% and below 100%.",
            field="--committed",
            value=text,
            next=remedy,
        )
    return Committed(None, Fraction(percent))


def _parse_number(value: Number, field: str, least: str, most: str, example: str, *, is_share: bool = False) -> Decimal:
    """Return a number from `least` to `most`; with `is_share`, `30%` is 0.3. Raises InvalidRequest."""
    number = _parse_share(value) if is_share else parse_decimal(value)
    if number is not None and Decimal(least) <= number <= Decimal(most):
        return number
    raise InvalidRequest(
        f"{str(value)!r} is not a number from {least} to {most}.",
        field=field,
        value=str(value),
        next=f"For example {field} {example}",
    )
