"""A page of a proxy or of a login in between proves nothing: no end, no empty listing, no launch that made none."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.control.inventory.settle import NOT_LAUNCHED
from cloudgpu.core.model.offers import Requirements
from cloudgpu.errors import InstanceNotFound, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.lambdalabs.provider import make as make_lambda
from cloudgpu.providers.runpod.provider import make as make_runpod
from cloudgpu.providers.vast.provider import make as make_vast
from cloudgpu.testing import make_attempt, new_host_key
from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.clouds.rest_faults import FOREVER
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process

__all__ = ["lambdalabs", "lambdalabs_process", "runpod", "runpod_process", "vast", "vast_process"]

# By the name of the model: what makes the provider, a GPU, and its actions: a look, a listing, an end, a launch.
PLACES = {
    "lambdalabs": (make_lambda, "a10", ("get", "list", "terminate", "launch")),
    "runpod": (make_runpod, "h100", ("pods.get", "pods.list", "pods.delete", "pods.create")),
    "vast": (make_vast, "rtx4090", ("get", "list", "destroy", "rent")),
}
NO_SUCH = {"lambdalabs": "global/object-does-not-exist", "runpod": "gone", "vast": "no_such_instance"}
HTML = "<html><body>404 page not found</body></html>"
PAGES = [
    (404, HTML),
    (404, {"message": "no Route matched with those values"}),
    (404, ""),
    (403, HTML),
    (405, HTML),
    (408, HTML),
    (200, HTML),
    (200, ""),
    (200, []),
]


class Place:
    """An account at one of the models, with the names of its actions."""

    def __init__(self, name, server, home):
        make, self.gpu, (self.look, self.listing, self.end, self.rent) = PLACES[name]
        self.name, self.server = name, server
        settings = ProviderSettings("lab", {}, home, server.clock.now, server.advance, patience=0.5)
        self.provider = make(settings)

    def attempt(self):
        item = self.provider.available(Requirements(gpu=self.gpu)).items[0]
        made = make_attempt(item, now=self.server.clock.now(), host_key=new_host_key())
        resolve = getattr(self.provider, "resolve", None)
        return made if resolve is None else replace(made, call=resolve(made.request, item).call)

    def launch(self, attempt):
        return self.provider.launch(attempt, deadline=attempt.made_at + timedelta(minutes=2))

    def shows(self, page, *actions):
        status, body = page
        for action in actions:
            self.server.faults.add(action, error="page", status=status, body=body, times=FOREVER)


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return Place(request.param, request.getfixturevalue(request.param), tmp_path / "lab")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_page_proves_that_a_machine_is_gone_or_that_there_is_none(place, page):
    made = place.launch(place.attempt())
    place.server.advance(900)
    place.shows(page, place.look, place.listing, place.end)
    for ask in (lambda: place.provider.get(made.id), place.provider.list):
        with pytest.raises(ProviderUnavailable):
            ask()
    if page not in ((200, ""), (200, [])):  # what an end that was taken is answered with proves nothing
        with pytest.raises(ProviderUnavailable):
            place.provider.terminate(made.id)
    place.server.faults.clear()
    assert [one.id for one in place.provider.list().instances] == [made.id]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_page_proves_that_a_launch_made_nothing(place, page):
    attempt = place.attempt()
    place.shows(page, place.rent)
    for _ in range(2):
        with pytest.raises(ProviderUnavailable):
            place.launch(attempt)
    assert len(place.server.called(place.rent)) == 1


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 408, 409, 410, 422, 429, 500, 503])
def test_whatever_a_launch_is_answered_it_was_surely_not_made_or_that_is_not_known(place, status):
    attempt = place.attempt()
    place.server.faults.add(place.rent, error=NO_SUCH[place.name], status=status, times=FOREVER)
    with pytest.raises((*NOT_LAUNCHED, ProviderUnavailable)):
        place.launch(attempt)


def test_not_found_by_its_id_and_yet_listed_is_no_end(runpod, tmp_path):
    place = Place("runpod", runpod, tmp_path / "lab")
    made = place.launch(place.attempt())
    runpod.advance(900)
    runpod.faults.add("pods.get", error="gone", status=404, message="pod not found", times=FOREVER)
    for ask in (place.provider.get, place.provider.stop, place.provider.start):
        with pytest.raises(ProviderUnavailable, match="but lists it"):
            ask(made.id)
    place.provider.terminate(made.id)
    with pytest.raises(InstanceNotFound):
        place.provider.get(made.id)
    assert [call.action for call in runpod.calls[-2:]] == ["pods.get", "pods.list"]
