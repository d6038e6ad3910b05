"""What a plan says of several machines as one: whether they are worth it, and how likely a gang on spot is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cloudgpu import catalog
from cloudgpu.catalog.read import monthly_interruption, network_of
from cloudgpu.core.clusters.scaling import GangLoss, gang_sentence, loss_an_hour, plan_remark, spot_losses
from cloudgpu.core.model.machine import Machine, is_owned
from cloudgpu.core.model.offers import Accelerator, Available, Market, Note, NoteKind

ONLY_REAPER_ENDS_ALL = (
    "a cluster ends at its lease or when idle only while cloudgpu reap or watch runs; without that, it keeps running "
    "until renew-until"
)


def cluster_remarks(nodes: int, item: Available, machines: Iterable[Machine]) -> Iterator[str]:
    """Yield what the plan of so many machines like this one says of their speed, and of spot; nothing for one machine.

    `machines` are those of the ledger. Of machines that the user owns nothing is known but to the user, who is not
    asked in a plan.
    """
    if nodes < 2 or is_owned(item.provider):  # noqa: PLR2004  (a cluster)
        return
    yield Note(ONLY_REAPER_ENDS_ALL, NoteKind.GUARD)
    yield plan_remark(
        nodes, item.instance_type, peak_of(item.accelerators), network_of(item.provider, item.instance_type)
    )
    if item.market is Market.SPOT:
        loss = gang_loss_of(nodes, item.provider, item.instance_type, item.region, machines)
        yield unknown_loss(nodes) if loss is None else gang_sentence(loss)


def peak_of(accelerators: Iterable[Accelerator]) -> float | None:
    """Return the dense peak of a machine's GPU in bf16 or fp16, in TFLOPs; a share has its part. None: not known."""
    gpu = next(iter(accelerators), None)
    spec = None if gpu is None else catalog.spec_of(gpu.name, gpu.memory_gib)
    return None if gpu is None or spec is None or spec.tensor_tflops is None else spec.tensor_tflops * gpu.share


def gang_loss_of(
    nodes: int, provider: str, kind: str, region: str, machines: Iterable[Machine], given: float | None = None
) -> GangLoss | None:
    """Return the chance to lose one of so many spot machines of a type; None where nobody knows.

    `given` is that of one machine in an hour, as the user knows it. Else it is what the ledger has seen, and else what
    the provider publishes, which is for a month.
    """
    if given is not None:
        return GangLoss(nodes, "hour", (given, given), "--spot-loss")
    interruptions, hours = spot_losses(machines, kind)
    if interruptions and hours:
        loss = loss_an_hour(interruptions, hours)
        return GangLoss(nodes, "hour", (loss, loss), f"your ledger: {interruptions} taken in {hours:.3g} hours")
    published = monthly_interruption(provider, kind, region)
    return None if published is None else GangLoss(nodes, "month", *published)


def unknown_loss(nodes: int) -> str:
    """Return that nobody knows how often such machines are taken, and how an estimate can be made."""
    return (
        f"Any loss restarts all {nodes}: how often they are taken is in no list, nor in your ledger. For the chance by "
        "that of one machine: cloudgpu estimate --spot-loss 5%"
    )
