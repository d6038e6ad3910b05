"""The local provider: machines on this computer that behave like a cloud's.

An instance is an SSH server on loopback with its own directory, environment and processes. It outlives the
command that made it, is stopped, started and terminated, ends itself, and costs its electricity.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from cloudgpu.access.computer import login_name
from cloudgpu.core.activity.computer_share import ComputerShare
from cloudgpu.core.catalog.matching import fits
from cloudgpu.core.model.identity import AccountIdentity, Unanswered
from cloudgpu.core.model.instances import TAG_NAME, TAG_RENEW_UNTIL, Instance, Listing, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Accelerator, Availability, MachineConfiguration, Market, Price, Requirements
from cloudgpu.core.policies.guards import Agent, Safeguards, Timer
from cloudgpu.core.values.naming import digest
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import InstanceNotFound, InvalidRequest, MissingExtra, NoCapacity, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.providers.local import power, translate
from cloudgpu.providers.local.build import build
from cloudgpu.providers.local.deadlines import tag_time
from cloudgpu.providers.local.layout import (
    BUILT_PREFIX,
    INSTANCE_PREFIX,
    Layout,
    read_json,
    remove_machine,
    sync_directory,
    write_json,
)
from cloudgpu.providers.local.options import local_options
from cloudgpu.providers.local.processes import end_all, marker
from cloudgpu.providers.local.store import (
    StoredMachine,
    cloud_lock,
    complete_all_pending,
    complete_pending,
    end_and_remove,
    identity,
    identity_id_or_new,
    known_identity_id,
    read_machine,
    read_tags,
    request_end,
    system_errors,
    wait_until_dead,
)

PROVIDER = "local"
REGION = "here"
INSTANCE_TYPE = "local"
STOP_EFFECT = "ends its processes and keeps its directory; a stopped local machine costs nothing"
STATUS_TIMEOUT_S = 10.0  # of an agent's status command
_REQUIRED_MODULES = ("asyncssh", "psutil")


def make(settings: ProviderSettings) -> LocalProvider:
    """Return the local provider of one account; raise InvalidRequest for a bad setting. Touches no file."""
    return LocalProvider(settings)


class LocalProvider:
    """Implements Provider, Pausable, Taggable, HasPrices, SharesComputer, HasTimer and CanRehearseInterruption."""

    kind = PROVIDER
    supported_parts = frozenset({"on_start"})
    guards = Safeguards(Agent.ENDS, Timer.OWN)
    token_rule = TokenRule(
        lifetime=timedelta(days=36500),
        listing_proves_after=timedelta(0),
        source="the instance id follows from the token and names the machine's directory, which exists until "
        "terminate has removed it; calls are serialised by a lock",
    )

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self._home = settings.home
        # The time of whoever calls, and how far ahead of it this computer's clock is.
        self._caller_clock, self._clock_ahead = settings.clock, settings.clock_ahead
        self._options = local_options(settings.account, settings.options)

    def _clock(self) -> datetime:
        """Return the time of this computer's clock, which its machines use."""
        return self._caller_clock() + self._clock_ahead()

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (this computer is all there is)
        """Return which computer, user and directory of machines this is; it is written down at the first call."""
        return identity(self._home)

    def available(self, requirements: Requirements) -> Availability:
        """Return this computer as an offer in both markets, if it fits the requirements."""
        accelerators = power.gpus()
        shortage_text = self._gpu_shortage(_requested_gpus(requirements)) if accelerators else None
        offers = (self._offer(market, accelerators, shortage_text) for market in Market)
        return Availability(tuple(offer for offer in offers if fits(offer, requirements)))

    def _offer(
        self, market: Market, accelerators: tuple[Accelerator, ...], shortage_text: str | None
    ) -> MachineConfiguration:
        return MachineConfiguration(
            provider=PROVIDER,
            account=self.account,
            region=REGION,
            zone=REGION,
            instance_type=INSTANCE_TYPE,
            market=market,
            accelerators=accelerators,
            vcpus=power.vcpus(),
            memory_gib=power.memory_gib(),
            stop_effect=STOP_EFFECT,
            after=() if shortage_text is None else (f"{shortage_text}, so it refuses --gpu now",),
        )

    def _gpu_shortage(self, requested: int, except_id: str | None = None) -> str | None:
        """Return a sentence if fewer GPUs are free than wanted, with the machines that have them; else None.

        A machine has those that it was launched for (`--gpu`), while it runs. `except_id` is not counted.
        """
        if not requested or not self._home.exists():
            return None
        total, names = sum(gpu.count for gpu in power.gpus()), list[str]()
        free = total
        for path in sorted(self._home.glob(f"{INSTANCE_PREFIX}*")):
            with contextlib.suppress(ProviderUnavailable):  # a broken record: `list` names it
                stored = read_machine(Layout(path))
                is_running = stored is not None and translate.state_of(stored) in (State.PENDING, State.RUNNING)
                gpu_count = (
                    stored.record.get("gpus", 0) if stored is not None and is_running and path.name != except_id else 0
                )
                if gpu_count and self._is_here(Layout(path)):
                    free, names = (
                        free - gpu_count,
                        [*names, translate.tags(Layout(path)).get(TAG_NAME, path.name)],
                    )
        if requested <= free or not names:
            return None
        holders = f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'}"
        if total == 1:
            return f"{holders} the GPU of this computer"
        return f"{holders} {total - free} of the {total} GPUs of this computer, and {requested} of them would be needed"

    def _check_free(self, requested: int, except_id: str | None = None) -> None:
        """Raise NoCapacity where fewer GPUs are free than are wanted: two jobs on one may both run out of memory."""
        shortage_text = self._gpu_shortage(requested, except_id)
        if shortage_text is not None:
            remedy = "Stop that machine, request fewer, or leave --gpu out to share the GPU."
            raise NoCapacity(f"{shortage_text}.", field="--gpu", next=remedy)

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return the price of the whole computer at its maximum power for each of our offers; None for others."""
        our_offers = [offer for offer in offers if _is_ours(offer)]
        price_by_gpus = {
            gpus: power.price(self._options, gpus, self._clock())
            for gpus in {offer.accelerators for offer in our_offers}
        }
        return [price_by_gpus[offer.accelerators] if _is_ours(offer) else None for offer in offers]

    def shared_price(self, offer: MachineConfiguration, share: ComputerShare) -> Price | None:
        """Return what an hour cost a machine with this share of the computer; None for an offer that is not ours."""
        return power.shared_price(self._options, offer.accelerators, share, self._clock()) if _is_ours(offer) else None

    def agent_status(self, id: str, since: float) -> bytes:  # noqa: A002
        """Run the status command of the machine's agent here, as that of a stopped machine has no SSH server to ask.

        Return what it prints, empty if it fails. Raises InstanceNotFound.
        """
        with self._locked():
            layout = self._existing_layout(id)
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(  # noqa: S603
                [layout.agent / "agent", "status", "--since", f"{since:.0f}"],
                env={"HOME": str(layout.home), "PATH": os.environ.get("PATH", os.defpath)},  # no secrets of the caller
                capture_output=True,
                check=True,
                timeout=STATUS_TIMEOUT_S,
            ).stdout
        return b""

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:  # noqa: ARG002  (nothing here takes long)
        """Make the machine's directory and start its process; the same token returns the same machine.

        Raises MissingExtra, NoCapacity where other machines have the GPUs that it wants, and NoCapacity or AuthFailed
        when the disk is full or may not be written.
        """
        _check_modules()
        layout = Layout(self._home / instance_id(attempt.token))
        attempt = translate.to_computer_time(attempt, self._clock_ahead())
        with self._locked():
            if read_machine(layout) is None:
                self._check_free(_requested_gpus(attempt.request.requirements))
                with system_errors(self._home, making=True):
                    self._build_machine(layout, attempt)
                    self._start_accepted(layout)
            else:
                self._complete_pending(layout)
            return self._instance(layout)

    def _build_machine(self, layout: Layout, attempt: Attempt) -> None:
        building_dir = self._home / f"{BUILT_PREFIX}{layout.root.name}"
        try:
            building_dir.mkdir(mode=0o700)
            build(building_dir, layout.root, attempt, self._new_record(layout, attempt))
            building_dir.rename(layout.root)
        except BaseException:
            if building_dir.exists():
                remove_machine(building_dir)
            raise
        sync_directory(self._home)

    def _start_accepted(self, layout: Layout) -> None:
        """Start an accepted machine; where the disk is too full even for that, remove it."""
        try:
            self._complete_pending(layout)
        except OSError:
            end_all(marker(layout.root))
            remove_machine(layout.root)
            raise

    def _new_record(self, layout: Layout, attempt: Attempt) -> dict[str, Any]:
        now = iso(self._clock())
        offer = attempt.offer.configuration
        return {
            "token": attempt.token,
            "identity": identity_id_or_new(self._home),
            "root": str(layout.root),
            "mark": marker(layout.root),
            "user": login_name(),
            "market": offer.market.value,
            "accelerators": [asdict(accelerator) for accelerator in offer.accelerators],
            "gpus": _requested_gpus(attempt.request.requirements),
            "launched_at": now,
            "wanted": "running",
            "boots": 1,
            "boot_at": now,
            "spawned": 0,
        }

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound when there is none."""
        with self._locked():
            return self._instance(self._existing_layout(id))

    def list(self) -> Listing:
        """Return every machine of this account; one whose record is broken is named as unanswered."""
        if not self._home.exists():
            return Listing(())
        instances, unanswered = [], []
        with self._locked():
            for path in sorted(self._home.glob(f"{INSTANCE_PREFIX}*")):
                try:
                    if self._is_here(Layout(path)):
                        instances.append(self._instance(Layout(path)))
                except ProviderUnavailable as error:
                    unanswered.append(Unanswered(f"{self.account}/{path.name}", error.message))
        return Listing(tuple(instances), tuple(unanswered))

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags where the machine reads them, too. Raises InstanceNotFound."""
        with self._locked():
            layout = self._existing_layout(id)
            write_json(layout.tags, read_tags(layout) | translate.shift_tags(tags, self._clock_ahead()))

    def timer(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the machine process ends the machine whatever else has died. Raises InstanceNotFound."""
        with self._locked():
            seconds = tag_time(read_tags(self._existing_layout(id)), TAG_RENEW_UNTIL)
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC) - self._clock_ahead()

    def stop(self, id: str) -> None:  # noqa: A002
        """End the machine's processes and keep its directory. Raises InstanceNotFound, StopUnproved."""
        with self._locked():
            layout = self._existing_layout(id)
        self._end(layout, "stopped")

    def terminate(self, id: str) -> None:  # noqa: A002
        """End the machine's processes and remove its directory; an unknown id is no error. Raises StopUnproved."""
        layout = self._layout(id)
        if layout is not None and self._home.exists():
            self._end(layout, "terminated")

    def _end(self, layout: Layout, wanted_state: str) -> None:
        with self._locked():
            stored = read_machine(layout)
            if stored is None:
                return
            self._existing_layout(stored.id)
            with contextlib.suppress(OSError) if wanted_state == "terminated" else contextlib.nullcontext():
                request_end(stored, wanted_state, self._clock())
        wait_until_dead(layout)
        with self._locked():
            current = read_machine(layout)
            if current is None or current.record["launched_at"] != stored.record["launched_at"]:
                return
            if wanted_state == "terminated":  # whatever the record says: a full disk may have kept it as it was
                end_and_remove(current)
            else:
                complete_pending(layout, self._clock(), self._options.start_timeout, overdue=True)

    def start(self, id: str) -> None:  # noqa: A002
        """Start a stopped machine, on its old port where that is free.

        Raises InstanceNotFound, MissingExtra, NoCapacity where others have its GPUs, and InvalidRequest when it was
        interrupted or is just stopping.
        """
        _check_modules()
        with self._locked():
            layout = self._existing_layout(id)
            stored = read_machine(layout)
            if stored is None or stored.record["wanted"] == "running":
                return
            _refuse_unstartable(stored)
            self._check_free(stored.record.get("gpus", 0), id)
            for stale_file in (layout.spot, layout.power_off):
                stale_file.unlink(missing_ok=True)
            record = {key: value for key, value in stored.record.items() if key not in ("ended", "asked_at")}
            boot_fields = {"wanted": "running", "boots": stored.record["boots"] + 1, "boot_at": iso(self._clock())}
            write_json(layout.record, record | boot_fields)
            self._complete_pending(layout)

    def interrupt(self, id: str) -> datetime:  # noqa: A002
        """Give the machine its notice, `interruption_notice` ahead; then it ends as terminated. Idempotent.

        Raises InstanceNotFound, and InvalidRequest for a machine that does not run.
        """
        with self._locked():
            layout = self._existing_layout(id)
            notice = read_json(layout.spot)
            if notice is not None:
                return from_iso(notice["time"]) - self._clock_ahead()
            state = self._instance(layout).state
            if state not in (State.RUNNING, State.PENDING):
                message = f"Only a running machine can be interrupted; {id} is {state.value}."
                raise InvalidRequest(message, field="instance", value=id, next="start it first")
            at = self._clock() + self._options.notice
            write_json(layout.spot, {"action": "terminate", "time": iso(at)})
            return at - self._clock_ahead()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with system_errors(self._home), cloud_lock(self._home):
            complete_all_pending(self._home, known_identity_id(self._home), self._clock(), self._options.start_timeout)
            yield

    def _complete_pending(self, layout: Layout) -> None:
        complete_pending(layout, self._clock(), self._options.start_timeout)

    def _layout(self, id_: str) -> Layout | None:
        is_id = id_.startswith(INSTANCE_PREFIX) and id_.replace("-", "").isalnum()
        return Layout(self._home / id_) if is_id else None

    def _is_here(self, layout: Layout) -> bool:
        """Say whether a machine belongs to this directory of machines, not to one of which this is a copy."""
        stored = read_machine(layout)
        return stored is None or bool(stored.record["identity"] == known_identity_id(self._home))

    def _existing_layout(self, id_: str) -> Layout:
        layout = self._layout(id_)
        if layout is None or read_machine(layout) is None:
            raise InstanceNotFound(f"There is no local machine {id_!r}.", field="instance", value=id_)
        if not self._is_here(layout):
            message = (
                f"The machine {id_} is not at this place: {layout.root} is a copy of its files, or shared with it."
            )
            raise ProviderUnavailable(message, field="instance", value=id_, next="run this where it was launched")
        return layout

    def _instance(self, layout: Layout) -> Instance:
        stored = read_machine(layout)
        if stored is None:
            raise InstanceNotFound(
                f"There is no local machine {layout.root.name!r}.", field="instance", value=layout.root.name
            )
        instance = translate.instance(stored, self.account, REGION, INSTANCE_TYPE)
        return translate.to_caller_time(instance, self._clock_ahead())


def _is_ours(offer: MachineConfiguration) -> bool:
    return offer.provider == PROVIDER and offer.instance_type == INSTANCE_TYPE


def _requested_gpus(requirements: Requirements) -> int:
    """Return how many GPUs a machine is launched for; none where any computer will do."""
    return 0 if requirements.gpu is None else requirements.gpu_count


def instance_id(token: str) -> str:
    """Return the instance id that follows from a launch token."""
    return INSTANCE_PREFIX + digest("local instance", token)[:16]


def _check_modules() -> None:
    missing = [name for name in _REQUIRED_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"The local provider needs {' and '.join(missing)}, which is not installed.",
            field="provider",
            value=PROVIDER,
            next="pip install 'cloudgpu[local]'",
        )


def _refuse_unstartable(stored: StoredMachine) -> None:
    if stored.record["wanted"] == "terminated" or "ended" not in stored.record:
        message = f"The machine {stored.id} is just ending."
        raise InvalidRequest(message, field="instance", value=stored.id, next="try again when it has stopped")
    if stored.record["ended"]["state"] == "terminated":
        message = f"The machine {stored.id} was interrupted and is gone."
        raise InvalidRequest(message, field="instance", value=stored.id, next="launch a new one")
