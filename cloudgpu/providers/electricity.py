"""How many watts a machine draws, and the usual figures where nobody has said its watts or its tariff.

The computer without its GPUs and the tariff are the defaults of `local` (docs/reference/config.md); a GPU draws its
board's watts by the catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from cloudgpu.core.model.offers import Accelerator
from cloudgpu.core.values.times import duration_text

REST_OF_COMPUTER_WATTS = Decimal(
    100
)  # a desktop at work without its GPUs: T. Dettmers, "Which GPU(s) to Get for Deep Learning"
USD_PER_KWH = Decimal("0.12")  # the same text
BOARD_WATTS = Decimal(300)  # of a GPU that the catalogue lacks: our guess, and said to be one


@dataclass(frozen=True, slots=True)
class PowerDraw:
    """How many watts a machine draws, and in words how they come about. `is_known`: no GPU's watts are guessed."""

    watts: Decimal
    explanation: str
    is_known: bool = True


def draw_from_setting(watts: Decimal, gpus: Sequence[Accelerator]) -> PowerDraw:
    """Return what a machine draws whose computer draws `watts` at work: the share of the GPUs that it uses."""
    used_count, total_count = _gpus_used(gpus)
    return PowerDraw(
        watts * used_count / total_count,
        f"{watts} W" if used_count == total_count else f"{used_count} of {total_count} GPUs of {watts} W",
    )


def assumed_draw(gpus: Sequence[Accelerator]) -> PowerDraw:
    """Return what a machine draws by the rated watts of its GPUs, and its share of the rest of the computer."""
    used_count, total_count = _gpus_used(gpus)
    rest_watts, gpu_draw = REST_OF_COMPUTER_WATTS * used_count / total_count, boards_draw(gpus)
    rest_text = f"{rest_watts.normalize():f} W for the rest"
    explanation = f"{gpu_draw.explanation} + {rest_text}" if gpus else rest_text
    return PowerDraw(rest_watts + gpu_draw.watts, explanation, gpu_draw.is_known)


def boards_draw(gpus: Sequence[Accelerator]) -> PowerDraw:
    """Return what GPUs draw at work by the rated watts of their boards."""
    total_watts, texts, is_known = Decimal(0), [], True
    for gpu in gpus:
        listed_watts = board_watts(gpu)
        is_known = is_known and listed_watts is not None
        watts = BOARD_WATTS if listed_watts is None else listed_watts
        total_watts += watts * gpu.count
        guess = " as a guess" if listed_watts is None else ""
        texts.append(f"{gpu.count} x {watts:f} W{guess} for {gpu.name}")
    return PowerDraw(total_watts, " + ".join(texts), is_known)


def metered_draw(gpu_watts: Decimal, measured_for: timedelta, gpus: Sequence[Accelerator]) -> PowerDraw:
    """Return what a machine draws whose GPUs drew `gpu_watts` on average, and its share of the rest of the computer."""
    used_count, total_count = _gpus_used(gpus)
    rest_watts = REST_OF_COMPUTER_WATTS * used_count / total_count
    measured = f"measured: {gpu_watts:f} W on average over {duration_text(measured_for)}"
    return PowerDraw(gpu_watts + rest_watts, f"{measured} + {rest_watts.normalize():f} W assumed for the rest")


def board_watts(gpu: Accelerator) -> Decimal | None:
    """Return a GPU board's rated watts by the catalogue; None where it does not have them."""
    from cloudgpu import catalog

    spec = catalog.spec_of(gpu.name, gpu.memory_gib)
    return None if spec is None or spec.watts is None else Decimal(str(spec.watts)).normalize()


def _gpus_used(gpus: Sequence[Accelerator]) -> tuple[int, int]:
    """Return how many GPUs the machine uses and how many its computer has; 1 of 1 where it has them all."""
    for gpu in gpus:
        if gpu.out_of:
            return sum(gpu_in_use.count for gpu_in_use in gpus), gpu.out_of
    return 1, 1
