"""An image of a disk that is left over, kept by name, before the disk is removed."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from cloudgpu.control.extras import image_price
from cloudgpu.control.silence import Silence
from cloudgpu.control.thing_lines import write
from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_OWNER, TAG_PROJECT
from cloudgpu.core.model.resources import Kind, Leftover
from cloudgpu.core.resources.orphan import Cost, Do, Orphan
from cloudgpu.core.values.naming import digest, tag_value
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.abilities import Imageable

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

SAVED_WITHIN = timedelta(minutes=60)
_LONGEST_PAUSE_S = 15.0


def saves(one: Orphan) -> bool:
    """Say whether an image of it is made before it goes, where that is asked: it is a disk."""
    return one.do is Do.REMOVE and one.what == Kind.DISK


def price_of(one: Orphan) -> Cost:
    """Return what an image of a disk costs a month, at most."""
    found = image_price(one.provider, one.region, one.size_gb)
    return Cost(found.per_month, at_most=True, source=found.source)


def name_of(one: Orphan) -> str:
    """Return the name of the image: it follows from the disk, so that who asks again after a crash makes no second."""
    word = re.sub(r"[^a-z0-9]+", "-", one.origin.name.lower()).strip("-")[:31]
    return f"{word if word[:1].isalpha() else 'disk'}-{digest(one.id)[:8]}"


def saved(session: Session, one: Orphan) -> Leftover:
    """Go on making the image of a disk until it is ready; write it down and return it.

    Raises InvalidRequest where the provider makes none, ProviderUnavailable when it took longer than an hour.
    """
    provider, name = session.provider(one.account), name_of(one)
    if not isinstance(provider, Imageable):
        raise InvalidRequest(f"{one.provider} makes no image of a disk", field="--snapshot", value=one.id)
    tags = {
        TAG_IMAGE: name,
        TAG_LEDGER: session.ledger.id,
        TAG_OWNER: tag_value(one.origin.owner),
        TAG_PROJECT: tag_value(one.origin.project),
    } | ({TAG_ID: one.origin.id} if one.origin.id else {})
    session.tell(f"making the image {name} of {one.id} ({one.size_gb} GB)")
    deadline, pause, last = session.clock() + SAVED_WITHIN, 0.5, "it is still being made"
    silence = Silence(session)
    while True:
        try:
            made = provider.save_image(one.id, f"cloudgpu-{session.ledger.id}-{name}", tags, restart=False)
            if made.ready and made.kind is Kind.IMAGE:
                write(session, [made])
                return made
        except ProviderUnavailable as fault:
            last = silence.note(fault)
        if session.clock() >= deadline or silence.lasts():
            raise _not_ready(name, last)
        session.pause(pause)
        pause = min(_LONGEST_PAUSE_S, pause * 1.5)


def _not_ready(name: str, last: str) -> ProviderUnavailable:
    minutes = SAVED_WITHIN // timedelta(minutes=1)
    return ProviderUnavailable(
        f"The image {name} is not ready after {minutes} minutes ({last}); its disk stays.",
        field="--snapshot",
        value=name,
        next="Run the same again: it goes on with that image.",
    )
