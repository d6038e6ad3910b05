"""What Azure refuses at once of a machine that is asked for: its size, system, image, network, limits."""

from __future__ import annotations

import base64
from typing import Any

from tests.clouds.azure import market, skus
from tests.clouds.azure.model import Ask, Model
from tests.clouds.rest import Refusal

CUSTOM_DATA = 65535  # bytes, after decoding (REST reference)


def check(model: Model, ask: Ask) -> None:
    """Refuse what Azure would refuse at once. The words are from public reports."""
    body, facts = ask.body, ask.body.get("properties") or {}
    region, zones = body["location"].lower(), body.get("zones") or []
    size = skus.size_of((facts.get("hardwareProfile") or {}).get("vmSize", ""))
    name = (facts.get("hardwareProfile") or {}).get("vmSize")
    if size is None:
        raise Refusal("InvalidParameter", f"The value {name} provided for the VM size is not valid.")
    if not skus.offered(model, size, region, zones[0] if zones else ""):
        at = f"in location '{region}'" + (f" zones '{zones[0]}'" if zones else "")
        sentence = f"The requested size for resource '{ask.id}' is currently not available {at} for subscription."
        raise Refusal("SkuNotAvailable", f"{sentence} Please try another size or deploy to a different location.")
    _check_spot(facts)
    _check_system(ask, facts)
    _check_image(model, facts, size, region)
    _check_network(model, facts, region)
    skus.charge(model, size, region, spot=facts.get("priority") == "Spot")


def _check_spot(facts: dict[str, Any]) -> None:
    spot = facts.get("priority") == "Spot"
    if not spot and ("evictionPolicy" in facts or "billingProfile" in facts):
        sentence = "Eviction policy and billing profile can be set only on Azure Spot Virtual Machines."
        raise Refusal("InvalidParameter", sentence)
    price = (facts.get("billingProfile") or {}).get("maxPrice", -1)
    if price != -1 and price <= 0:
        raise Refusal("InvalidParameter", f"The value {price} of parameter 'billingProfile.maxPrice' is invalid.")


def _check_system(ask: Ask, facts: dict[str, Any]) -> None:
    profile = facts.get("osProfile")
    if profile is None:
        return
    name = ask.id.rpartition("/")[2]
    if not 1 <= len(name) <= 64 or not 1 <= len(profile.get("computerName", name)) <= 64:
        raise Refusal("InvalidParameter", "Linux host name cannot exceed 64 characters in length.")
    given = base64.b64decode(profile.get("customData", ""), validate=True)
    if len(given) > CUSTOM_DATA:
        raise Refusal("InvalidParameter", f"Custom data in OSProfile must be at most {CUSTOM_DATA} bytes.")
    linux = profile.get("linuxConfiguration") or {}
    keys = (linux.get("ssh") or {}).get("publicKeys") or []
    user = profile.get("adminUsername")
    if not user or (not keys and "adminPassword" not in profile):
        raise Refusal("InvalidParameter", "Authentication using either SSH or by user name and password is required.")
    for key in keys:
        if key.get("path") != f"/home/{user}/.ssh/authorized_keys":
            raise Refusal("InvalidParameter", f"Destination path for SSH public keys is limited to /home/{user}/.ssh.")


def _check_image(model: Model, facts: dict[str, Any], size: skus.Size, region: str) -> None:
    profile = facts["storageProfile"]
    if profile["osDisk"]["createOption"] != "FromImage":
        return
    image = market.booted(model, profile.get("imageReference") or {}, region)
    if image.generation not in size.generations.split(","):
        sentence = f"The selected VM size '{size.name}' cannot boot Hypervisor Generation '{image.generation[1]}'."
        raise Refusal("BadRequest", sentence)
    if image.generalized != ("osProfile" in facts):
        sentence = (
            "Parameter 'osProfile' is not allowed." if "osProfile" in facts else "Parameter 'osProfile' required."
        )
        raise Refusal("InvalidParameter", sentence)
    if (facts.get("securityProfile") or {}).get("securityType") == "TrustedLaunch" and image.generation != "V2":
        raise Refusal("BadRequest", "Security type 'TrustedLaunch' needs an image of generation 2.")


def _check_network(model: Model, facts: dict[str, Any], region: str) -> None:
    profile = facts.get("networkProfile") or {}
    made, there = profile.get("networkInterfaceConfigurations"), profile.get("networkInterfaces")
    if not made and not there:
        raise Refusal("InvalidParameter", "Required parameter 'networkProfile' is missing (null).")
    if made and not profile.get("networkApiVersion"):
        sentence = "Required parameter 'networkProfile.networkApiVersion' is missing (null)."
        raise Refusal("InvalidParameter", sentence)
    for one in there or []:
        model.get(one["id"])
    for one in made or []:
        _check_interface(model, one, region)


def _check_interface(model: Model, asked: dict[str, Any], region: str) -> None:
    facts = asked["properties"]
    subnets = [one["properties"].get("subnet", {}).get("id", "") for one in facts["ipConfigurations"]]
    named = [*subnets, (facts.get("networkSecurityGroup") or {}).get("id", "")]
    for id_ in filter(None, named):
        found = model.resources.get(id_.lower())
        if found is None:
            raise Refusal("InvalidResourceReference", f"Resource {id_} referenced by resource was not found.")
        home = model.get(found.id.rpartition("/subnets/")[0]) if "/subnets/" in id_.lower() else found
        if home.region != region:
            raise Refusal("InvalidResourceReference", f"Resource {id_} is not in region {region}.")
    if not all(subnets):
        raise Refusal("SubnetIsRequired", "Subnet reference is required for ipconfiguration.")
