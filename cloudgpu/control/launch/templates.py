"""Joins a launch with its template: which one is meant, and what its parts become at an offer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.config.files.paths import data_dir
from cloudgpu.config.templates.find import Template, load_template
from cloudgpu.config.templates.render import rendered
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.launch import LaunchRequest, Part
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Offer
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import Resolved

if TYPE_CHECKING:
    from collections.abc import Mapping

DRIVER_TEMPLATE = "cuda"


def find_template(session: Session, name: str | None) -> Template:
    """Return the template called `name` (None: the usual one) with the user's settings; say where an own one lies.

    Raises InvalidRequest as `load_template` does.
    """
    wanted = session.settings.template if name is None else name
    template = load_template(wanted, search=session.template_paths(), settings=session.settings.templates)
    if template.path.parent != data_dir("templates"):  # a project's runs what its author wrote
        session.tell(f"the template {template.name} is from {template.path}")
    return template


def opens_jupyter(session: Session, row: Machine) -> bool:
    """Say whether a machine's template has a Jupyter to open; True where the template is not known here (any more)."""
    try:
        return bool(load_template(row.template or "", search=session.template_paths()).jupyter)
    except InvalidRequest:
        return True


def parts_at(template: Template, request: LaunchRequest, offer: Offer) -> tuple[Part, ...]:
    """Return the template's parts as a machine of this offer is given them; raise InvalidRequest for a fault in it."""
    return rendered(template, _values(request, offer))


def driver_parts(
    session: Session, resolved: Resolved, template: Template, request: LaunchRequest, offer: Offer
) -> tuple[Part, ...]:
    """Return what installs a driver on an image that has none, before the template's own parts."""
    if resolved.driver is None or template.name == DRIVER_TEMPLATE:
        return ()
    search, settings = session.template_paths(), {**session.settings.templates}
    settings[DRIVER_TEMPLATE] = {**resolved.driver, **settings.get(DRIVER_TEMPLATE, {})}
    installs = load_template(DRIVER_TEMPLATE, search=search, settings=settings)
    return tuple(part for part in parts_at(installs, request, offer) if part.kind in ("packages", "cloud_init"))


def _values(request: LaunchRequest, offer: Offer) -> Mapping[str, object]:
    at = offer.available
    return {
        "provider": at.provider,
        "account": at.account,
        "region": at.region,
        "zone": at.zone,
        "instance_type": at.instance_type,
        "market": str(at.market),
        "gpu": at.accelerators[0].name if at.accelerators else "",
        "gpu_count": sum(one.count for one in at.accelerators),
        "owner": request.owner,
        "project": request.project,
        "template": request.template,
    }
