"""Instances as AWS keeps them: client tokens, refusals, states that last, reasons, addresses of this loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import StateReason
from moto.ec2.responses import EC2Response
from moto.ec2.utils import convert_tag_spec

from tests.clouds.aws import checks, placements, spot
from tests.clouds.aws.model import STATES, Model

REASONS = {
    "user": ("Client.UserInitiatedShutdown", "User initiated shutdown"),
    "inside": ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown"),
    "spot": ("Server.SpotInstanceTermination", "Spot instance termination"),
    "spot stop": ("Server.SpotInstanceShutdown", "Spot instance shutdown"),
}
BEGUN = {
    "user": "User initiated",
    "spot": "Service initiated",
    "spot stop": "Service initiated",
    "inside": "",
}  # belief


class Machines(EC2Response):
    """The calls about instances."""

    model: Model

    def run_instances(self) -> ActionResult:
        """Launch; the same token with the same parameters is answered with the same reservation, as it is now.

        As many as MaxCount, as far as the zone has room, and none where that is fewer than MinCount. Where a zone or
        subnet is named, a token counts in that zone only (AWS, Ensuring idempotency in EC2).
        """
        asked = dict(self.params)
        place = checks.zone_of(self.ec2_backend, self.params) or self.region
        key = (place, "RunInstances", str(asked.pop("ClientToken", "") or ""))
        asked.pop("DryRun", None)
        if key[2] and (made := self.model.once(key, asked)):
            return ActionResult(self._known(made))
        checks.launch(self.model, self.ec2_backend, self.params)
        spot.request_of(self.model, self.ec2_backend, self.params)  # raises what AWS says to a low price
        zone = checks.zone_of(self.ec2_backend, self.params) or f"{self.region}a"  # where moto puts it
        placements.check(self.model, self.ec2_backend, self.params, zone)
        least, most = (int(self.params.get(name) or 1) for name in ("MinCount", "MaxCount"))
        kind = self.params.get("InstanceType") or "m1.small"
        count = placements.room(self.model, self.ec2_backend, kind, zone, least, most)
        made = self._launch(count)
        if key[2]:
            self.model.made(key, asked, made.id)
        return ActionResult(made)

    def _known(self, reservation_id: str) -> Any:
        """Return what a token launched before; AWS has a code of its own for one whose machine has ended."""
        reservation = self.ec2_backend.reservations.get(reservation_id)
        gone = reservation is None or all(one.state == "terminated" for one in reservation.instances)
        if gone and (reservation is None or not self.model.shows_terminated):
            said = "The request to launch an instance uses the same client token as a previous request for which "
            raise EC2ClientError("IdempotentInstanceTerminated", f"{said}the instance has been terminated.")
        return reservation

    def _launch(self, count: int, request: Any = None, index: int = 0) -> Any:
        """Launch so many machines, each with a spot request of its own where it is on spot.

        `request` is one that launches its next machine; that this has the launch index of the one before is belief.
        """
        self.params = {**self.params, "MinCount": count, "MaxCount": count}
        reservation = super().run_instances()._result
        for number, instance in enumerate(reservation.instances):
            instance.ami_launch_index = index + number
            instance.placement.group_name = (self.params.get("Placement") or {}).get("GroupName") or ""
            self._furnish(instance)
            own = request or spot.request_of(self.model, self.ec2_backend, self.params)
            if own is not None:
                instance.spot_instance_request_id = own.id
            if own is not None and request is None:
                again = partial(self._launch, 1, own, instance.ami_launch_index)
                spot.keep(self.ec2_backend, own, instance, again)
            self._turn(instance, "pending", "running")
        return reservation

    def _furnish(self, instance: Any) -> None:
        """Write what moto leaves out or makes up: the time, the addresses, the disks as they were asked."""
        instance.launch_time = self.model.naive()
        nic, (public, private) = instance.nics[0], self.model.addresses()
        instance.security_groups = list(nic.group_set)  # of its first interface, named there or at the launch
        nic.private_ip_address, nic.private_ip_addresses = private, [{"Primary": True, "PrivateIpAddress": private}]
        nic.public_ip = nic.public_ip and public
        specs = self.params.get("NetworkInterfaces") or [{}]
        nic.delete_on_termination = specs[0].get("DeleteOnTermination") is not False
        nic.add_tags(convert_tag_spec(self.params.get("TagSpecifications") or []).get("network-interface", {}))
        asked = {one.get("DeviceName"): one.get("Ebs", {}) for one in self.params.get("BlockDeviceMappings") or []}
        for device, mapping in instance.get_block_device_mapping:
            self._furnish_disk(instance, device, mapping, asked.get(device, {}))

    def _furnish_disk(self, instance: Any, device: str, mapping: Any, asked: dict[str, Any]) -> None:
        volume = self.ec2_backend.get_volume(mapping.volume_id)
        volume.create_time = volume.attachment.attach_time = mapping.attach_time = self.model.naive()
        volume.iops, volume.throughput = asked.get("Iops") or volume.iops, asked.get("Throughput") or volume.throughput
        if device == instance.root_device_name:
            mapping.delete_on_termination = asked.get("DeleteOnTermination") is not False
            image = self.ec2_backend.amis.get(instance.image_id)
            volume.snapshot_id = volume.snapshot_id or (image and image.ebs_snapshot.id)

    def start_instances(self) -> ActionResult:
        """Start what is stopped; what is terminated or on its way cannot be."""
        ended = {"terminated": "started", "shutting-down": "started", "stopping": "started"}
        before = self._states("start", ended)
        self._check_room([one for one, state in before if state.name == "stopped"])
        for instance, state in before:
            if state.name == "stopped":
                instance.start()
                instance.launch_time = self.model.naive()
                if instance.nics[0].public_ip:
                    instance.nics[0].public_ip = self.model.addresses()[0]
                self._turn(instance, "pending", "running")
                spot.started(self.ec2_backend, instance)
        return ActionResult({"StartingInstances": list(_changes(before))})

    def _check_room(self, meant: list[Any]) -> None:
        """Refuse a start for which a zone has no room, whole."""
        for kind, zone in {(one.instance_type, one.availability_zone) for one in meant}:
            count = sum((one.instance_type, one.availability_zone) == (kind, zone) for one in meant)
            placements.room(self.model, self.ec2_backend, kind, zone, count, count)

    def stop_instances(self) -> ActionResult:
        """Stop what runs; a machine of a one-time spot request cannot be, nor one that is not there yet."""
        unready = {"terminated": "stopped", "shutting-down": "stopped", "pending": "stopped"}
        before = self._states("stop", unready)
        for instance, _ in before:
            spot.refuse_stop(self.ec2_backend, instance)
            _refuse_protected(instance, "stopped", "disable_api_stop")
        for instance, state in before:
            if state.name == "running":
                self._stop(instance, "user")
        return ActionResult({"StoppingInstances": list(_changes(before))})

    def create_tags(self) -> ActionResult:
        """Tag what there is; a machine that is not there cannot be tagged."""
        self.ec2_backend.get_multi_instances_by_id([one for one in self._get_param("Resources", []) if one[:2] == "i-"])
        return super().create_tags()

    def terminate_instances(self) -> ActionResult:
        """End machines, once or again."""
        before = self._states("terminate", {})
        for instance, _ in before:
            _refuse_protected(instance, "terminated", "disable_api_termination")
            _refuse_protected(instance, "terminated", "disable_api_stop")
        for instance, state in before:
            if state.name not in {"terminated", "shutting-down"}:
                self._end(instance, "user")
        return ActionResult({"TerminatingInstances": list(_changes(before))})

    def _stop(self, instance: Any, why: str) -> None:
        instance.stop()
        spot.stopped(self.ec2_backend, instance, why)
        self._explain(instance, "spot stop" if why == "spot" else why)
        self._turn(instance, "stopping", "stopped")

    def _end(self, instance: Any, why: str) -> None:
        self._explain(instance, why)
        spot.ended(self.ec2_backend, instance, why)
        said = instance._reason, instance.state_reason

        def gone() -> None:
            instance.terminate()
            instance._reason, instance.state_reason = said
            self.model.set_state(instance, "terminated")
            self.model.later(instance.id, "terminated", lambda: self._forget(instance))
            request = spot.of(self.ec2_backend, instance)
            if request is not None:
                self.model.later(request.id, "request", lambda: spot.forget(self.ec2_backend, request))
            spot.again(self.ec2_backend, instance)

        self.model.set_state(instance, "shutting-down")
        self.model.later(instance.id, "shutting-down", gone)

    def _forget(self, instance: Any) -> None:
        for name, reservation in list(self.ec2_backend.reservations.items()):
            reservation.instances = [one for one in reservation.instances if one is not instance]
            if not reservation.instances:
                del self.ec2_backend.reservations[name]

    def _explain(self, instance: Any, why: str) -> None:
        code, sentence = REASONS[why]
        instance.state_reason = StateReason(f"{code}: {sentence}", code)
        instance._reason = f"{BEGUN[why]} ({self.model.now():%Y-%m-%d %H:%M:%S} GMT)" if BEGUN[why] else ""
        if why.startswith("spot") and not self.model.dates_interruptions:
            instance._reason = code

    def _turn(self, instance: Any, through: str, to: str) -> None:
        self.model.set_state(instance, through)
        self.model.later(instance.id, through, lambda: self.model.set_state(instance, to))

    def _states(self, verb: str, wrong: dict[str, str]) -> list[tuple[Any, Any]]:
        """Return the machines that are meant, each with its state now; one in a wrong state fails the whole call."""
        self.error_on_dryrun()
        found = self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", []))
        for instance in found:
            if instance.state in wrong:
                sentence = (
                    f"The instance '{instance.id}' is not in a state from which it can be {wrong[instance.state]}."
                )
                raise EC2ClientError("IncorrectInstanceState", sentence)
        return [(instance, _state(instance)) for instance in found]


def _refuse_protected(instance: Any, verb: str, attribute: str) -> None:
    """Refuse what a protection forbids, as AWS says it (public reports).

    Stop protection forbids a termination, too ("Enable stop protection"); that AWS names it then, is belief.
    """
    if getattr(instance, attribute, False) in {True, "true"}:
        first, *rest = attribute.split("_")
        how = f"Modify its '{first}{''.join(map(str.capitalize, rest))}' instance attribute and try again."
        raise EC2ClientError("OperationNotPermitted", f"The instance '{instance.id}' may not be {verb}. {how}")


def _state(instance: Any) -> Any:
    from moto.ec2.models.instances import InstanceState

    return InstanceState(instance.state, instance.state_code)


def _changes(before: list[tuple[Any, Any]]) -> Iterator[dict[str, Any]]:
    for instance, state in before:
        now = {"Code": STATES[instance.state], "Name": instance.state}
        yield {"InstanceId": instance.id, "CurrentState": now, "PreviousState": state}


def shut_down(kind: type[Machines], instance: Any) -> None:
    """Shut a machine down from inside: its own setting says whether it stops or is terminated."""
    _acting(kind, instance, lambda made: made._end if _ends(instance) else made._stop)(instance, "inside")


def interrupt(kind: type[Machines], instance: Any) -> None:
    """Let AWS take a spot machine back, as its request says: terminate, or stop."""
    request = spot.of(instance.ec2_backend, instance)
    stops = request is not None and request.instance_interruption_behavior == "stop"
    _acting(kind, instance, lambda made: made._stop if stops else made._end)(instance, "spot")


def _ends(instance: Any) -> bool:
    return str(instance.instance_initiated_shutdown_behavior) == "terminate"


def _acting(kind: type[Machines], instance: Any, which: Callable[[Any], Any]) -> Any:
    made = kind()
    made.region, made.current_account = instance.ec2_backend.region_name, instance.ec2_backend.account_id
    return which(made)
