"""What an hour of a machine's electricity costs where nobody has said its watts or its tariff: usual figures, marked.

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

SYSTEM_WATTS = Decimal(100)  # a desktop at work without its GPUs: T. Dettmers, "Which GPU(s) to Get for Deep Learning"
USD_PER_KWH = Decimal("0.12")  # the same text
BOARD_WATTS = Decimal(300)  # of a GPU that the catalogue lacks: our guess, and said to be one


@dataclass(frozen=True, slots=True)
class Drawn:
    """So many watts, and in words how they come about. `known`: no GPU's watts are guessed."""

    watts: Decimal
    words: str
    known: bool = True


def from_setting(watts: Decimal, gpus: Sequence[Accelerator]) -> Drawn:
    """Return what a machine draws whose computer draws `watts` at work: some of its GPUs draw their part of that."""
    part, of = _part(gpus)
    return Drawn(watts * part / of, f"{watts} W" if part == of else f"{part} of {of} GPUs of {watts} W")


def assumed(gpus: Sequence[Accelerator]) -> Drawn:
    """Return what a machine draws by its GPUs' boards, and its part of the rest of the computer."""
    part, of = _part(gpus)
    rest, drawn = SYSTEM_WATTS * part / of, boards(gpus)
    words = f"{rest.normalize():f} W for the rest"
    return Drawn(rest + drawn.watts, f"{drawn.words} + {words}" if gpus else words, drawn.known)


def boards(gpus: Sequence[Accelerator]) -> Drawn:
    """Return what GPUs draw at work by their boards."""
    total, words, known = Decimal(0), [], True
    for gpu in gpus:
        board = board_watts(gpu)
        known = known and board is not None
        total += (BOARD_WATTS if board is None else board) * gpu.count
        guess = " as a guess" if board is None else ""
        words.append(f"{gpu.count} x {BOARD_WATTS if board is None else board:f} W{guess} for {gpu.name}")
    return Drawn(total, " + ".join(words), known)


def metered(watts: Decimal, over: timedelta, gpus: Sequence[Accelerator]) -> Drawn:
    """Return what a machine draws whose GPUs drew `watts` on average, and its part of the rest of the computer."""
    part, of = _part(gpus)
    rest = SYSTEM_WATTS * part / of
    words = f"measured: {watts:f} W on average over {duration_text(over)} + {rest.normalize():f} W assumed for the rest"
    return Drawn(watts + rest, words)


def board_watts(gpu: Accelerator) -> Decimal | None:
    """Return a board's watts by the catalogue; None where it does not have them."""
    from cloudgpu import catalog

    spec = catalog.spec_of(gpu.name, gpu.memory_gib)
    return None if spec is None or spec.watts is None else Decimal(str(spec.watts)).normalize()


def _part(gpus: Sequence[Accelerator]) -> tuple[int, int]:
    """Return how many GPUs the machine uses, of how many; 1 of 1 where it has the computer to itself."""
    for gpu in gpus:
        if gpu.of:
            return sum(one.count for one in gpus), gpu.of
    return 1, 1
