"""Images: those of the marketplace, and which generation of machine boots an image."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.clouds.azure.handlers import answers
from tests.clouds.azure.model import SUBSCRIPTION, Ask, Model
from tests.clouds.rest import Refusal, Reply


class Sold(NamedTuple):
    """The versions of one image, oldest first, and what boots it."""

    versions: tuple[str, ...]
    generation: str = "V2"
    architecture: str = "x64"
    gb: int = 64


IMAGES = {  # publisher, offer, sku: names as public code has them; the newest versions are made up
    ("microsoft-dsvm", "ubuntu-hpc", "2204"): Sold(("22.04.2023080201", "22.04.2025081901")),
    ("microsoft-dsvm", "ubuntu-hpc", "2404"): Sold(("24.04.2025081901",)),
    ("microsoft-dsvm", "ubuntu-hpc", "2204-rocm"): Sold(("22.04.2025030701",)),
    ("microsoft-dsvm", "ubuntu-hpc", "2004"): Sold(("20.04.2024080901",), gb=30),
    ("microsoft-dsvm", "ubuntu-2004", "2004"): Sold(("21.11.04",), "V1", gb=150),
    ("microsoft-dsvm", "ubuntu-2004", "2004-gen2"): Sold(("21.08.30",), gb=150),
    ("Canonical", "0001-com-ubuntu-server-jammy", "22_04-lts"): Sold(("22.04.202510010",), "V1", gb=30),
    ("Canonical", "0001-com-ubuntu-server-jammy", "22_04-lts-gen2"): Sold(("22.04.202510010",), gb=30),
    ("Canonical", "ubuntu-24_04-lts", "server"): Sold(("24.04.202510010",), gb=30),
    ("Canonical", "ubuntu-24_04-lts", "server-gen1"): Sold(("24.04.202510010",), "V1", gb=30),
}
_BY_NAME = {tuple(part.lower() for part in name): one for name, one in IMAGES.items()}


def sold(publisher: str, offer: str, sku: str) -> Sold | None:
    return _BY_NAME.get((publisher.lower(), offer.lower(), sku.lower()))


def _asked(ask: Ask) -> tuple[str, Sold]:
    where = ask.where
    found = sold(where["publisherName"], where["offer"], where["skus"])
    if found is None:
        at = f"/Publishers/{where['publisherName']}/ArtifactTypes/VMImage/Offers/{where['offer']}/Skus/{where['skus']}"
        raise Refusal("NotFound", f"Artifact: VMImage was not found: {at}", 404)
    region = where["location"]
    base = f"/Subscriptions/{SUBSCRIPTION}/Providers/Microsoft.Compute/Locations/{region}/Publishers"
    return f"{base}/{where['publisherName']}/ArtifactTypes/VMImage/Offers/{where['offer']}/Skus/{where['skus']}", found


@answers("VirtualMachineImages.List")
def list_versions(model: Model, ask: Ask) -> Reply:
    """List versions, oldest first; newest first where `$orderby` says so."""
    at, found = _asked(ask)
    names = list(found.versions)
    if ask.query.get("$orderby", "").lower() == "name desc":
        names.reverse()
    top = int(ask.query.get("$top", len(names)))
    rows = [{"location": ask.where["location"], "name": one, "id": f"{at}/Versions/{one}"} for one in names[:top]]
    return Reply(200, rows)


@answers("VirtualMachineImages.ListSkus")
def list_image_skus(model: Model, ask: Ask) -> Reply:
    publisher, offer, region = ask.where["publisherName"], ask.where["offer"], ask.where["location"]
    base = f"/Subscriptions/{SUBSCRIPTION}/Providers/Microsoft.Compute/Locations/{region}/Publishers/{publisher}"
    at = f"{base}/ArtifactTypes/VMImage/Offers/{offer}/Skus"
    names = [sku for who, what, sku in IMAGES if (who.lower(), what.lower()) == (publisher.lower(), offer.lower())]
    return Reply(200, [{"location": region, "name": one, "id": f"{at}/{one}"} for one in names])


@answers("VirtualMachineImages.Get")
def get_version(model: Model, ask: Ask) -> Reply:
    """Return one version by its exact name. Whether `latest` is taken here is unverified: it is not."""
    at, found = _asked(ask)
    version = ask.where["version"]
    if version not in found.versions:
        raise Refusal("NotFound", f"Artifact: VMImage was not found: {at}/Versions/{version}", 404)
    facts = {
        "hyperVGeneration": found.generation,
        "architecture": found.architecture,
        "osDiskImage": {"operatingSystem": "Linux"},
        "dataDiskImages": [],
        "automaticOSUpgradeProperties": {"automaticOSUpgradeSupported": False},
        "features": [{"name": "SecurityType", "value": "TrustedLaunchSupported"}] if found.generation == "V2" else [],
    }
    where = {"location": ask.where["location"], "name": version, "id": f"{at}/Versions/{version}"}
    return Reply(200, {**where, "properties": facts})


class Booted(NamedTuple):
    """What a machine boots: the generation, the size of its disk, and whether it takes an `osProfile`."""

    generation: str
    gb: int
    generalized: bool = True


def booted(model: Model, reference: dict[str, Any], region: str) -> Booted:
    """Return what an `imageReference` is. Raises Refusal for one that is not there."""
    if id_ := reference.get("id"):
        return _own(model, id_, region)
    names = [reference.get(one, "") for one in ("publisher", "offer", "sku")]
    version, found = reference.get("version", ""), sold(*names)
    if found is None or (version.lower() != "latest" and version not in found.versions):
        sentence = f"The platform image '{':'.join([*names, version])}' is not available."
        raise Refusal("PlatformImageNotFound", f"{sentence} Verify that all fields in the storage profile are correct.")
    return Booted(found.generation, found.gb)


def _own(model: Model, id_: str, region: str) -> Booted:
    thing = model.resources.get(id_.lower()) or _gallery_version(model, id_)
    if thing is None:
        raise Refusal("ImageNotFound", f"The Image '{id_}' cannot be found in '{region}' region.")
    regions = {one["name"].replace(" ", "").lower() for one in _targets(thing)} or {thing.region}
    if region not in regions:
        raise Refusal("ImageNotFound", f"The Image '{id_}' cannot be found in '{region}' region.")
    if "/galleries/" in id_.lower():
        owner = model.get(id_.partition("/versions/")[0])
        return Booted(owner.facts.get("hyperVGeneration", "V1"), 64, owner.facts["osState"] == "Generalized")
    disk = thing.facts["storageProfile"]["osDisk"]
    return Booted(
        thing.facts.get("hyperVGeneration", "V1"), disk.get("diskSizeGB", 64), disk["osState"] == "Generalized"
    )


def _targets(thing: Any) -> list[dict[str, Any]]:
    return (thing.facts.get("publishingProfile") or {}).get("targetRegions") or []


def _gallery_version(model: Model, id_: str) -> Any:
    """Return the newest version of a gallery's image."""
    below = [one for key, one in model.resources.items() if key.startswith(f"{id_.lower()}/versions/")]
    return max(below, key=lambda one: [int(part) for part in one.name.split(".")], default=None)
