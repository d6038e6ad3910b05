"""Spot: request records that follow their machine, and prices with a history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.responses import EC2Response
from moto.ec2.utils import convert_tag_spec, generic_filter, random_spot_request_id

from tests.clouds.aws import pricing, types
from tests.clouds.aws.model import Model
from tests.clouds.aws.types import WILD

PRODUCTS = {"Linux/UNIX": Decimal(1), "Red Hat Enterprise Linux": Decimal("1.4"), "Windows": Decimal("1.9")}
AGE = timedelta(minutes=20)  # of the newest price
NOTICE = timedelta(minutes=2)  # how long a machine runs on after its request says that there is no capacity for it
MOST_REGIONS, LEAST_SCORES = 10, 10  # of one question, and of one page (EC2 API Reference, GetSpotPlacementScores)
NEVER_OPEN_AGAIN = {"cancelled", "closed"}
ENDED_BY = {
    "user": ("instance-terminated-by-user", "Spot Instance terminated due to user-initiated termination."),
    "inside": ("instance-terminated-by-user", "Spot Instance terminated due to user-initiated termination."),
    "spot": ("instance-terminated-no-capacity", "Your instance was terminated because there is no capacity available."),
}


class SpotRequest(TaggedEC2Resource):
    """One spot instance request, as DescribeSpotInstanceRequests shows it."""

    def __init__(self, model: Model, backend: Any, options: dict[str, Any], params: dict[str, Any]) -> None:
        self.ec2_backend = backend
        self.id = self.spot_instance_request_id = random_spot_request_id()
        self.type = options.get("SpotInstanceType") or "one-time"
        self.spot_price = str(options.get("MaxPrice") or price_at(model, params["InstanceType"], backend.region_name))
        self.valid_until = options.get("ValidUntil")
        self.instance_interruption_behavior = options.get("InstanceInterruptionBehavior") or "terminate"
        self.product_description = "Linux/UNIX"
        self.create_time = model.naive()
        self.clock = model.naive
        self.tag_specifications = params.get("TagSpecifications") or []
        self.instance: Any = None
        self.relaunch: Callable[[], Any] | None = None
        self.set("open", "pending-evaluation", "Your Spot request has been submitted for review.")

    def set(self, state: str, code: str, message: str, at: datetime | None = None) -> None:
        """Write its state, and why; `at` is since when, if that is not now."""
        self.state = state
        self.status = {"Code": code, "Message": message, "UpdateTime": at or self.clock()}

    def fulfil(self, instance: Any) -> None:
        """Write the machine that it has now."""
        self.instance = instance
        instance.lifecycle, instance.spot_instance_request_id = "spot", self.id
        self.set("active", "fulfilled", "Your Spot request is fulfilled.")

    @property
    def instance_id(self) -> str | None:
        return self.instance and self.instance.id

    @property
    def launched_availability_zone(self) -> str | None:
        return self.instance and self.instance.availability_zone

    @property
    def launch_specification(self) -> dict[str, Any]:
        one = self.instance
        if one is None:
            return {}
        return {"InstanceType": one.instance_type, "ImageId": one.image_id, "KeyName": one.key_name}

    def get_filter_value(self, filter_name: str, method_name: str | None = None) -> Any:
        known = {
            "state": self.state,
            "type": self.type,
            "instance-id": self.instance_id,
            "spot-instance-request-id": self.id,
            "status-code": self.status["Code"],
            "launched-availability-zone": self.launched_availability_zone,
        }
        if filter_name in known:
            return known[filter_name]
        return super().get_filter_value(filter_name, "DescribeSpotInstanceRequests")


class Spot(EC2Response):
    """The calls about spot requests and prices."""

    model: Model

    def describe_spot_instance_requests(self) -> ActionResult:
        """Return requests, ended ones too, as AWS does for a while."""
        found = self._requests(self._get_param("SpotInstanceRequestIds", []))
        return ActionResult({"SpotInstanceRequests": generic_filter(self._filters_from_querystring(), found)})

    def cancel_spot_instance_requests(self) -> ActionResult:
        """Cancel requests; their machines live on."""
        self.error_on_dryrun()
        found = self._requests(self._get_param("SpotInstanceRequestIds", []))
        for one in found:
            runs = one.instance is not None and one.instance.state not in {"terminated", "shutting-down"}
            code = "request-canceled-and-instance-running" if runs else "canceled-before-fulfillment"
            if one.state not in NEVER_OPEN_AGAIN:
                one.set("cancelled", code, "Your Spot request is canceled.")
        said = [{"SpotInstanceRequestId": one.id, "State": one.state} for one in found]
        return ActionResult({"CancelledSpotInstanceRequests": said})

    def _requests(self, ids: list[str]) -> list[SpotRequest]:
        known = self.ec2_backend.spot_instance_requests
        for one in ids:
            if one not in known:
                sentence = f"The spot instance request ID '{one}' does not exist"
                raise EC2ClientError("InvalidSpotInstanceRequestID.NotFound", sentence)
        return [known[one] for one in ids] if ids else list(known.values())

    def describe_spot_price_history(self) -> ActionResult:
        """Return prices, newest first: of all products unless one is named, and what was in force at StartTime."""
        rows = list(self._prices())
        begin = int(self._get_param("NextToken") or 0)
        size = int(self._get_param("MaxResults") or 1000)
        token = str(begin + size) if begin + size < len(rows) else ""
        return ActionResult({"SpotPriceHistory": rows[begin : begin + size], "NextToken": token})

    def get_spot_placement_scores(self) -> ActionResult:
        """Return scores of regions or of zones, by the ids of those, the best first; one page holds them all."""
        names, regions = self._get_param("InstanceTypes", []), self._get_param("RegionNames", [])
        _check_scores(names, regions, self._get_param("TargetCapacity"), self._get_param("MaxResults"))
        self.error_on_dryrun()
        found = []
        for region in regions or [self.region]:
            zones = RegionsAndZonesBackend.zones[region]
            rated = [
                (min(self.model.spot_scores.get((name, one.name), 3) for name in names), one.zone_id) for one in zones
            ]
            if self._get_bool_param("SingleAvailabilityZone", if_none=False):
                found += [{"Region": region, "AvailabilityZoneId": id_, "Score": score} for score, id_ in rated]
            else:
                found.append({"Region": region, "Score": max(rated)[0]})
        found.sort(key=lambda one: -one["Score"])
        return ActionResult({"SpotPlacementScores": found[: int(self._get_param("MaxResults") or 1000)]})

    def _prices(self) -> Iterator[dict[str, Any]]:
        wanted = self._wanted()
        start = _aware(self._get_param("StartTime"))
        for offer in types.offers("availability-zone", self.region, wanted["instance-type"] or ["*"]):
            named = {"availability-zone": offer["Location"], "instance-type": offer["InstanceType"]}
            if _meant(named["availability-zone"], wanted["availability-zone"]):
                told = self.model.spot_history.get((named["instance-type"], named["availability-zone"]))
                if told is not None:
                    known = sorted(one for one in told if one[0] <= self.model.now())
                    yield from _told(named, known, start, wanted["product-description"])
                    continue
                price = price_at(self.model, named["instance-type"], named["availability-zone"])
                yield from _history(named, price, self.model.began, start, wanted["product-description"])

    def _wanted(self) -> dict[str, list[str]]:
        filters = self._filters_from_querystring()
        zone = self._get_param("AvailabilityZone")
        products = [name.removesuffix(" (Amazon VPC)") for name in self._get_param("ProductDescriptions", [])]
        return {
            "availability-zone": [zone] if zone else filters.get("availability-zone", []),
            "instance-type": self._get_param("InstanceTypes", []) or filters.get("instance-type", []),
            "product-description": products or filters.get("product-description", []),
        }


def _check_scores(names: list[str], regions: list[str], capacity: Any, most: Any) -> None:
    """Raise what EC2 says to a question about scores that its API Reference does not allow."""
    if not names or capacity is None:
        missing = "InstanceTypes" if capacity is not None else "TargetCapacity"
        raise EC2ClientError("MissingParameter", f"The request must contain the parameter {missing}")
    if len(regions) > MOST_REGIONS or not int(capacity) > 0 or not LEAST_SCORES <= int(most or 1000) <= 1000:
        raise EC2ClientError("InvalidParameterValue", "RegionNames, TargetCapacity or MaxResults is out of range.")
    for region in regions:
        if region not in RegionsAndZonesBackend.zones:
            raise EC2ClientError("InvalidParameterValue", f"Invalid region name: {region}")


def _history(
    named: dict[str, str], price: Decimal | None, began: datetime, start: datetime | None, products: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield the price of now, and an older, higher one where nothing says from when."""
    for product, factor in PRODUCTS.items():
        if price is None or not _meant(product, products):
            continue
        row = {"AvailabilityZone": named["availability-zone"], "InstanceType": named["instance-type"]}
        row["ProductDescription"] = product
        yield {**row, "SpotPrice": f"{price * factor:.6f}", "Timestamp": (began - AGE).replace(tzinfo=None)}
        older = began - AGE - timedelta(hours=5)
        if start is None or start < began - AGE:
            yield {**row, "SpotPrice": f"{price * factor * 2:.6f}", "Timestamp": older.replace(tzinfo=None)}


def _told(
    named: dict[str, str], prices: list[tuple[datetime, Decimal]], start: datetime | None, products: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield prices newest first: those since `start`, and the one that was in force then."""
    before = [at for at, _ in prices if start is not None and at <= start]
    since = [(at, price) for at, price in prices if not before or at >= before[-1]]
    for at, price in reversed(since):
        for product, factor in PRODUCTS.items():
            if _meant(product, products):
                row = {"AvailabilityZone": named["availability-zone"], "InstanceType": named["instance-type"]}
                row |= {"ProductDescription": product, "SpotPrice": f"{price * factor:.6f}"}
                yield {**row, "Timestamp": at.replace(tzinfo=None)}


def _meant(value: str, wanted: list[str]) -> bool:
    return not wanted or value in wanted or any(fnmatchcase(value, one) for one in wanted if set(one) & WILD)


def _aware(at: Any) -> datetime | None:
    if at is None:
        return None
    found = at if isinstance(at, datetime) else datetime.fromisoformat(str(at))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def price_at(model: Model, type_name: str, place: str) -> Decimal | None:
    """Return the spot price of a type in a zone or region: the server's own, else a third of the on-demand price."""
    region = place if place[-1].isdigit() else place[:-1]
    for key in ((type_name, place), (type_name, region)):
        if key in model.spot_prices:
            return model.spot_prices[key]
    listed = pricing.on_demand(type_name, region)
    return None if listed is None else (listed / 3).quantize(Decimal("0.0001"))


def request_of(model: Model, backend: Any, params: Any) -> SpotRequest | None:
    """Return the spot request that a launch makes; None for one on demand. Raises what AWS says to a low price."""
    options = params.get("InstanceMarketOptions") or {}
    if options.get("MarketType") != "spot":
        return None
    asked = options.get("SpotOptions") or {}
    least = price_at(model, params["InstanceType"], backend.region_name)
    if asked.get("MaxPrice") and least is not None and Decimal(asked["MaxPrice"]) < least:
        sentence = (
            f"Your Spot request price of {asked['MaxPrice']} is lower than the minimum required Spot request "
            f"fulfillment price of {least}."
        )
        raise EC2ClientError("SpotMaxPriceTooLow", sentence)
    return SpotRequest(model, backend, asked, params)


def keep(backend: Any, request: SpotRequest, instance: Any, relaunch: Callable[[], Any]) -> None:
    """Keep a request with its machine and its tags; `relaunch` makes the next machine of a persistent one."""
    tags = convert_tag_spec(request.tag_specifications)
    backend.spot_instance_requests[request.id] = request
    request.relaunch = relaunch
    request.add_tags(tags.get("spot-instances-request", {}))
    request.fulfil(instance)


def of(backend: Any, instance: Any) -> SpotRequest | None:
    """Return a machine's spot request, if it has one."""
    return backend.spot_instance_requests.get(getattr(instance, "spot_instance_request_id", None))


def refuse_stop(backend: Any, instance: Any) -> None:
    """Raise UnsupportedOperation for a machine whose request is one-time."""
    request = of(backend, instance)
    if request is not None and request.type == "one-time":
        sentence = (
            f"You can't stop the Spot Instance '{instance.id}' because it is associated with a one-time Spot Instance "
            "request. You can only stop Spot Instances associated with persistent Spot Instance requests."
        )
        raise EC2ClientError("UnsupportedOperation", sentence)


def stopped(backend: Any, instance: Any, why: str) -> None:
    """Write into a machine's request that it was stopped; a cancelled one stays so."""
    request = of(backend, instance)
    if request is not None and request.state not in NEVER_OPEN_AGAIN:
        code = "instance-stopped-no-capacity" if why == "spot" else "instance-stopped-by-user"
        request.set("disabled" if why != "spot" else "open", code, "Your Spot Instance was stopped.")


def started(backend: Any, instance: Any) -> None:
    """Write into a machine's request that it runs again."""
    request = of(backend, instance)
    if request is not None and request.state not in NEVER_OPEN_AGAIN:
        request.fulfil(instance)


def ended(backend: Any, instance: Any, why: str) -> None:
    """Write into a machine's request that it ended: a one-time one is closed, a persistent one is open again.

    That AWS took it, the request says since the notice (EC2 user guide, State changes for a Spot request).
    """
    request = of(backend, instance)
    if request is None or request.instance is not instance:
        return
    if request.state not in NEVER_OPEN_AGAIN:
        state = "closed" if request.type == "one-time" else "open"
        noticed = max(request.status["UpdateTime"], request.clock() - NOTICE) if why == "spot" else None
        request.set(state, *ENDED_BY[why], at=noticed)


def forget(backend: Any, request: SpotRequest) -> None:
    """Delete a request that will launch nothing any more."""
    if request.state in NEVER_OPEN_AGAIN:
        backend.spot_instance_requests.pop(request.id, None)


def again(backend: Any, instance: Any) -> None:
    """Launch the next machine of a persistent request that is still open."""
    request = of(backend, instance)
    if request is None or request.instance is not instance or request.state != "open" or request.relaunch is None:
        return
    request.fulfil(request.relaunch().instances[0])
