"""A user's program: type-checked by a test as strictly as mypy can, and never run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, assert_type

import cloudgpu
from cloudgpu import Cloudgpu, CloudgpuError, InvalidRequest, NoCapacity
from cloudgpu.access.jupyter.notebook import CellResult, run_cell

Document = dict[str, Any]


def train(gpu: Cloudgpu, scripts: Sequence[Path]) -> bytes:
    """Use every method as a program would."""
    assert_type(gpu.plan(gpu="v100", spot=True, max_price=Decimal("1.5")), Document)
    assert_type(gpu.up(gpu="a100:8", lease=timedelta(hours=8), renew_until="3d", max_price=1.5, wait=False), Document)
    assert_type(gpu.cp(scripts, "trial:"), Document)
    assert_type(gpu.cp("trial:out.csv", Path()), Document)
    done = gpu.exec("trial", ["python3", "train.py"], input=b"seed")
    assert_type(done.status, int)
    with gpu.tunnel("trial", port=9999) as tunnel:
        assert_type(tunnel.port, int)
        assert_type(tunnel.url, str)
        assert_type(run_cell(tunnel.port, tunnel.token, "1 + 1"), CellResult)
    assert_type(gpu.extend("trial", "2h"), Document)
    assert_type(gpu.hold("trial", datetime(2030, 1, 1, tzinfo=UTC)), Document)
    assert_type(gpu.hold("trial", release=True), Document)
    assert_type(gpu.stop(), Document)
    assert_type(gpu.start("trial", lease=timedelta(hours=1)), Document)
    assert_type(gpu.interrupt("trial"), Document)
    assert_type(gpu.ls(refresh=True, all=True), Document)
    assert_type(gpu.show(history=True, why=True), Document)
    assert_type(gpu.backtest(Path("strict.yaml"), since=timedelta(days=7), machine="trial"), Document)
    assert_type(gpu.cost(), Document)
    assert_type(gpu.export("bill.csv", since="month"), Document)
    assert_type(gpu.reconcile(Path("aws.csv"), "aws"), Document)
    assert_type(gpu.verify(), Document)
    assert_type(gpu.doctor(), Document)
    assert_type(gpu.down("trial", "other"), Document)
    return done.stdout


def careful() -> int:
    """Meet every kind of fault by its class."""
    try:
        with cloudgpu.connect(home=Path.home() / "gpu", tell=print, clock=lambda: datetime.now(UTC)) as gpu:
            train(gpu, [])
    except NoCapacity as fault:
        assert_type(fault.next, str | None)
    except InvalidRequest as fault:
        assert_type(fault.field, str | None)
    except CloudgpuError as fault:
        return fault.exit_code
    return 0


# What is wrong is noticed: each of these has to need its comment, or mypy complains of the comment.
def wrong(gpu: Cloudgpu) -> None:
    """Make the mistakes that a checker is there for."""
    gpu.up(gpus="v100")  # type: ignore[call-arg]
    gpu.up(lease=8)  # type: ignore[arg-type]
    gpu.exec("trial", 7)  # type: ignore[arg-type]
    gpu.launch()  # type: ignore[attr-defined]
    cloudgpu.conect()  # type: ignore[attr-defined]
