"""The properties of every bill and of every history, each with thousands of random ones more than the suite has."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.core.billing import test_charges as bills, test_sustained_use as discounts
from tests.core.events import test_metering as histories

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
MANY = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
CHECKS = {
    name: check
    for module in (bills, histories, discounts)
    for name, check in vars(module).items()
    if hasattr(check, "hypothesis")
}


def test_there_are_properties_to_check():
    assert len(CHECKS) >= 14


@pytest.mark.parametrize("name", CHECKS)
def test_it_holds_for_thousands(name):
    MANY(CHECKS[name])()
