"""Reads what `run` asks of Slurm: nodes, GPUs on each, an array, a dependency, partition and account."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, TypedDict

from cloudgpu.config.files.user_files import shown
from cloudgpu.errors import InvalidRequest

MAX_NODES, MAX_GPUS = 10_000, 64
# The options that also go with a job that launches its own cluster (no --on); with one node, only the first.
GANG_OPTIONS = ("--nodes", "--gpus-per-node", "--once")
_INDEX = r"[0-9]{1,9}"  # nine digits are more than Slurm's highest index
_INDEXES = rf"{_INDEX}(-{_INDEX}(:{_INDEX})?)?"
_ARRAY = re.compile(rf"{_INDEXES}(,{_INDEXES})*(%[1-9][0-9]{{0,8}})?")
_SLURM_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,@+-]*")


class SlurmOptions(TypedDict, total=False):
    """What a job may ask of Slurm. Text is read as the command line reads it.

    `once`: the command runs on the first node only; else each node runs it.
    """

    nodes: int | str | None
    gpus_per_node: int | str | None
    array: str | None  # 0-9%4
    after: str | None  # the job that has to succeed first: a cloudgpu job's name, or Slurm's id
    partition: str | None
    slurm_account: str | None
    once: bool


@dataclass(frozen=True, slots=True)
class SlurmRequest:
    """What a job asks of Slurm, as in SlurmOptions; `typed_options` are those that the user gave, like `--nodes`."""

    nodes: int = 1
    gpus_per_node: int | None = None
    array: str | None = None
    after: str | None = None
    partition: str | None = None
    account: str | None = None
    once: bool = False
    typed_options: tuple[str, ...] = ()


def parse_slurm(options: Mapping[str, object], on: str | None) -> SlurmRequest:
    """Return what is asked of Slurm; raise InvalidRequest for an option that is not valid, or needs --on.

    Whether the machine has Slurm is found out later (`control/jobs/slurm/submission.py`).
    """
    typed_options = tuple(
        f"--{name.replace('_', '-')}" for name in SlurmOptions.__annotations__ if options.get(name) not in (None, False)
    )
    nodes = _parse_integer(options.get("nodes"), "--nodes", MAX_NODES) or 1
    if on is None:
        _check_without_on(typed_options, nodes)
    return SlurmRequest(
        nodes=nodes,
        gpus_per_node=_parse_integer(options.get("gpus_per_node"), "--gpus-per-node", MAX_GPUS),
        array=_parse_text(options.get("array"), "--array", _ARRAY, "0-9, 1,3,5 or 0-99%4"),
        after=_parse_text(options.get("after"), "--after", _SLURM_NAME, "the name of a job, or Slurm's id of it"),
        partition=_parse_text(options.get("partition"), "--partition", _SLURM_NAME, "one of: sinfo -s"),
        account=_parse_text(
            options.get("slurm_account"), "--slurm-account", _SLURM_NAME, "one of: sacctmgr show associations"
        ),
        once=bool(options.get("once")),
        typed_options=typed_options,
    )


def _check_without_on(typed_options: tuple[str, ...], nodes: int) -> None:
    """Raise InvalidRequest for what a job without --on cannot ask: its cluster is its own, and has no other job."""
    conflicting_option = next(
        (option for option in typed_options if option not in (GANG_OPTIONS if nodes > 1 else GANG_OPTIONS[:1])), None
    )
    if conflicting_option is not None:
        launches_own_cluster = nodes > 1 and conflicting_option not in GANG_OPTIONS
        raise InvalidRequest(
            f"{conflicting_option} needs an existing Slurm cluster; this job launches its own {nodes} machines."
            if launches_own_cluster
            else f"{conflicting_option} is for a job in Slurm, and no cluster is named.",
            field=conflicting_option,
            value=None,
            next=f"Name the cluster with --on (cloudgpu ls), or leave {conflicting_option} out.",
        )


def _parse_integer(value: object, option: str, maximum: int) -> int | None:
    if value is None:
        return None
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or not 1 <= int(text) <= maximum:
        _refuse(option, value, f"is not a whole number from 1 to {maximum:,}", f"For example {option} 2")
    return int(text)


def _parse_text(value: object, option: str, pattern: re.Pattern[str], example: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not pattern.fullmatch(value):
        _refuse(option, value, "cannot be read", f"Give {example}.")
    return value


def _refuse(option: str, value: object, problem: str, remedy: str) -> NoReturn:
    raise InvalidRequest(
        f"{option} {shown(str(value))!r} {problem}.", field=option, value=shown(str(value)), next=remedy
    )
