"""What `image` and `volume` share: the list of named resources, and the removal of one."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.common import Format, confirm, emit, exit_if_unanswered
from cloudgpu.cli.render import a_month, dollars, paragraph, table
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.values.naming import counted
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import NamedResource

_BILLED_BY_DATA = (Kind.IMAGE, Kind.SNAPSHOT)  # so their size is the most that they cost


def print_named_resources(session: Session, kind_name: str, output: Format) -> None:
    """Print the images or volumes of this ledger; exit with 8 if an account or region did not answer."""
    from cloudgpu.control.resources.named import images_document, list_named, named_resource_document, volumes_document

    named_resources = list_named(session, Kind(kind_name))
    document = images_document(named_resources) if Kind(kind_name) is Kind.IMAGE else volumes_document(named_resources)
    emit(
        output,
        document,
        _resources_table([named_resource_document(resource) for resource in named_resources.items], kind_name, session),
    )
    exit_if_unanswered(document["unanswered"])


def remove_named_resource(
    session: Session, kind_name: str, name: str | None, region: str | None, *, yes: bool, output: Format
) -> None:
    """Ask, remove the image or volume, and print that it is gone."""
    from cloudgpu.control.resources.named import find_named, named_resource_document, remove
    from cloudgpu.control.team.authorization import ownership_note, ownership_of_named

    if name is None:
        raise InvalidRequest(f"Which {kind_name}?", field="NAME", value=None, next=f"See them: cloudgpu {kind_name} ls")
    resource = find_named(session, Kind(kind_name), name, region)
    owner_sentence = ownership_note(session, ownership_of_named(resource), "remove")
    confirm(
        f"Remove the {kind_name} {resource.name} ({resource.size_gb} GB)? What is on it is lost.{owner_sentence}",
        yes=yes,
    )
    remove(session, resource)
    emit(output, {"removed": named_resource_document(resource)}, f"The {kind_name} {resource.name} is gone.")


def monthly(resource: NamedResource) -> str:
    """Return the monthly cost of a named resource, in words; `at most` if it is billed by the data in it."""
    return a_month(resource["usd_per_month"], at_most=resource["kind"] in _BILLED_BY_DATA)


def _resources_table(resources: list[NamedResource], kind_name: str, session: Session) -> str:
    if not resources:
        return f"There is no {kind_name}."
    machine_names = {machine.provider_id: machine.name for machine in session.ledger.machines() if machine.provider_id}
    rows = [
        [
            resource["name"],
            resource["provider"],
            resource["zone"] or resource["region"],
            f"{resource['size_gb']} GB",
            monthly(resource).removesuffix(" a month"),
            _used_by(resource, machine_names),
        ]
        for resource in resources
    ]
    return f"{paragraph(_total_text(resources, kind_name))}\n\n" + table(
        rows, ["NAME", "AT", "WHERE", "SIZE", "$/MONTH", "USED BY" if kind_name == "volume" else ""], right=(3,)
    )


def _total_text(resources: list[NamedResource], kind_name: str) -> str:
    """Return how many there are, and what they cost a month until they are removed."""
    known_usd = [Decimal(resource["usd_per_month"]) for resource in resources if resource["usd_per_month"] is not None]
    priced_kinds = {resource["kind"] for resource in resources if resource["usd_per_month"] is not None}
    at_most = "at most " if priced_kinds.intersection(_BILLED_BY_DATA) else ""
    unpriced_text = (
        f", and {len(resources) - len(known_usd)} without a known price" if len(known_usd) < len(resources) else ""
    )
    costs_text = (
        f"{at_most}{dollars(f'{sum(known_usd, Decimal())}')} a month{unpriced_text}"
        if known_usd
        else "the price is not known"
    )
    subject = "it is" if len(resources) == 1 else "they are"
    return f"{counted(len(resources), kind_name)}: {costs_text}, until {subject} removed."


def _used_by(resource: NamedResource, machine_names: dict[str, str]) -> str:
    if not resource["ready"]:
        return "being made"
    machine_id = resource["attached_to"]
    return str(machine_names.get(machine_id, machine_id)) if machine_id else ""
