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
from cloudgpu.views.documents.automation.backtest import BacktestDocument
from cloudgpu.views.documents.machines.machines import (
    DownDocument,
    InterruptionDocument,
    LsDocument,
    MachineDocument,
    PlannedUpDocument,
    ShownDocument,
    UpDocument,
)
from cloudgpu.views.documents.money.cost import CostDocument
from cloudgpu.views.documents.money.reconcile import ExportDocument, ReconcileDocument
from cloudgpu.views.documents.parts import Price
from cloudgpu.views.documents.setup.doctor import DoctorDocument
from cloudgpu.views.documents.setup.ledger import VerifyDocument

Document = dict[str, Any]


def train(gpu: Cloudgpu, scripts: Sequence[Path]) -> bytes:
    """Use every method as a program would."""
    assert_type(gpu.plan(gpu="v100", spot=True, max_price=Decimal("1.5")), PlannedUpDocument)
    assert_type(gpu.up(gpu="a100:8", lease=timedelta(hours=8), renew_until="3d", max_price=1.5, wait=False), UpDocument)
    assert_type(gpu.cp(scripts, "trial:"), Document)
    assert_type(gpu.cp("trial:out.csv", Path()), Document)
    done = gpu.exec("trial", ["python3", "train.py"], input=b"seed")
    assert_type(done.status, int)
    with gpu.tunnel("trial", port=9999) as tunnel:
        assert_type(tunnel.port, int)
        assert_type(tunnel.url, str)
        assert_type(run_cell(tunnel.port, tunnel.token, "1 + 1"), CellResult)
    assert_type(gpu.extend("trial", "2h"), MachineDocument)
    assert_type(gpu.hold("trial", datetime(2030, 1, 1, tzinfo=UTC)), MachineDocument)
    assert_type(gpu.hold("trial", release=True), MachineDocument)
    assert_type(gpu.stop(), MachineDocument)
    assert_type(gpu.start("trial", lease=timedelta(hours=1)), MachineDocument)
    assert_type(gpu.interrupt("trial"), InterruptionDocument)
    assert_type(gpu.ls(refresh=True, all=True), LsDocument)
    assert_type(gpu.show(history=True, why=True), ShownDocument)
    assert_type(gpu.backtest(Path("strict.yaml"), since=timedelta(days=7), machine="trial"), BacktestDocument)
    assert_type(gpu.cost(), CostDocument)
    assert_type(gpu.export("bill.csv", since="month"), ExportDocument)
    assert_type(gpu.reconcile(Path("aws.csv"), "aws"), ReconcileDocument)
    assert_type(gpu.verify(), VerifyDocument)
    assert_type(gpu.doctor(), DoctorDocument)
    assert_type(gpu.down("trial", "other"), DownDocument)
    return done.stdout


def names_of_those_that_cost(document: LsDocument) -> list[str]:
    """Read a document by its type."""
    costly = [one for one in document["machines"] if one["price"] is not None and one["billed"]]
    assert_type(costly[0]["price"], Price | None)
    assert_type(costly[0]["spent_usd"], str | None)
    return [one["name"] for one in costly]


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
    gpu.ls()["machine"]  # type: ignore[typeddict-item]
    gpu.stop()["spent"]  # type: ignore[typeddict-item]
    cloudgpu.conect()  # type: ignore[attr-defined]
