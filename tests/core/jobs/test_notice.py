"""What fits between the notice of a spot machine and its end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.cli.jobs.planned import notice_text
from cloudgpu.core.jobs.notice import ASSUMED_RATE, NOTICES, notice_fit
from cloudgpu.views.jobs import notice_document

MB = 1_000_000
EVERY = timedelta(minutes=10)


def test_what_fits_is_the_rate_times_what_is_left_of_the_notice_when_a_copy_begins():
    fit = notice_fit("aws", 25 * MB, "g4dn.xlarge", None, "")
    assert (fit.notice.seconds, fit.notice.copy_after_s, fit.copyable_bytes) == (120, 20, 100 * 25 * MB)
    fit = notice_fit("gcp", 25 * MB, "n1-standard-4", None, "")
    assert (fit.notice.seconds, fit.notice.copy_after_s, fit.copyable_bytes) == (30, 20, 10 * 25 * MB)


@pytest.mark.parametrize("provider", NOTICES)
def test_a_rate_that_was_not_measured_is_assumed_and_that_is_said(provider):
    fit = notice_fit(provider, None, "some-type", None, "")
    assert (fit.bytes_per_s, fit.measured_on, fit.previous_fits) == (ASSUMED_RATE, None, None)
    assert notice_text(fit, EVERY).endswith("fits at 5 MB/s (assumed: nothing was measured yet)")


def test_a_provider_whose_notice_is_not_known_says_nothing():
    assert notice_fit("elsewhere", 25 * MB, "x", 1, "fox") is None
    assert notice_text(None, EVERY) is None


@pytest.mark.parametrize(
    ("last", "fits", "says"),
    [
        (2500 * MB, True, "; the last one of lr-3 had 2.5 GB: it fits"),
        (2501 * MB, False, "; the last one of lr-3 had 2.5 GB: it does not fit: the copy of every 10m counts"),
    ],
)
def test_the_last_checkpoint_fits_or_does_not(last, fits, says):
    fit = notice_fit("aws", 25 * MB, "g4dn.xlarge", last, "lr-3")
    assert fit.previous_fits is fits
    text = notice_text(fit, EVERY)
    assert text.startswith("120 s before the end; a last copy begins within 20 s while run is in front, and ")
    assert "a checkpoint of up to about 2.5 GB fits at 25 MB/s (measured on g4dn.xlarge)" in text
    assert text.endswith(says)
    assert notice_document(fit)["last_bytes"] == last
