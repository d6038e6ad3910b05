"""What a plan says about a cluster: how much faster several machines are, and how likely spot nodes are interrupted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cloudgpu import catalog
from cloudgpu.catalog.read import monthly_interruption, network_of
from cloudgpu.core.clusters.scaling import GangLoss, gang_sentence, loss_an_hour, plan_remark, spot_losses
from cloudgpu.core.model.machine import Machine, is_on_prem
from cloudgpu.core.model.offers import Accelerator, MachineConfiguration, Market, Note, NoteKind

ONLY_REAPER_ENDS_ALL = (
    "a cluster ends at its lease or when idle only while cloudgpu reap or watch runs; without that, it keeps running "
    "until renew-until"
)


def cluster_remarks(nodes: int, machine_type: MachineConfiguration, machines: Iterable[Machine]) -> Iterator[str]:
    """Yield the remarks of a plan about a cluster of `nodes` machines of `machine_type`: speed, and the risk of spot.

    `machines` are those of the ledger. Yields nothing for one machine, and for machines that the user owns.
    """
    if nodes < 2 or is_on_prem(machine_type.provider):  # noqa: PLR2004  (a cluster)
        return
    yield Note(ONLY_REAPER_ENDS_ALL, NoteKind.GUARD)
    yield plan_remark(
        nodes,
        machine_type.instance_type,
        peak_tflops_of(machine_type.accelerators),
        network_of(machine_type.provider, machine_type.instance_type),
    )
    if machine_type.market is Market.SPOT:
        loss = gang_loss_of(nodes, machine_type.provider, machine_type.instance_type, machine_type.region, machines)
        yield unknown_loss_text(nodes) if loss is None else gang_sentence(loss)


def peak_tflops_of(accelerators: Iterable[Accelerator]) -> float | None:
    """Return the peak of a machine's GPU in dense bf16 or fp16 TFLOPS; of a shared GPU, its share. None: not known."""
    gpu = next(iter(accelerators), None)
    spec = None if gpu is None else catalog.spec_of(gpu.name, gpu.memory_gib)
    return None if gpu is None or spec is None or spec.tensor_tflops is None else spec.tensor_tflops * gpu.share


def gang_loss_of(
    nodes: int,
    provider: str,
    instance_type: str,
    region: str,
    machines: Iterable[Machine],
    hourly_loss: float | None = None,
) -> GangLoss | None:
    """Return the probability that one of so many spot machines of a type is interrupted; None if it is not known.

    `hourly_loss` is the user's own figure: the probability for one machine in an hour. Without it, the probability is
    by the interruptions in the ledger, or else by what the provider publishes for a month.
    """
    if hourly_loss is not None:
        return GangLoss(nodes, "hour", (hourly_loss, hourly_loss), "--spot-loss")
    interruptions, hours = spot_losses(machines, instance_type)
    if interruptions and hours:
        loss = loss_an_hour(interruptions, hours)
        return GangLoss(nodes, "hour", (loss, loss), f"your ledger: {interruptions} taken in {hours:.3g} hours")
    published = monthly_interruption(provider, instance_type, region)
    return None if published is None else GangLoss(nodes, "month", *published)


def unknown_loss_text(nodes: int) -> str:
    """Return that the probability of an interruption is not known, and how the user can give one."""
    return (
        f"Any loss restarts all {nodes}: how often they are taken is in no list, nor in your ledger. For the chance by "
        "that of one machine: cloudgpu estimate --spot-loss 5%"
    )
