"""The script that fits the models, and the models that it has written."""

from __future__ import annotations

import hashlib
from json import loads

import pytest

from benchmarks.spot.fit import TARGET, count, fit, text_of
from cloudgpu.core.spot.fitted import MODELS
from cloudgpu.core.spot.hazards import mixture_of
from cloudgpu.core.spot.replay.draws import Draws
from tests.core.spot.worlds import flickering, trace_of


def traces():
    rates = ((0.02, 0.2), (0.3, 0.1), (0.1, 0.3))
    zones = [flickering(Draws(seed), 3000, leaves=leaves, returns=back) for seed, (leaves, back) in enumerate(rates)]
    return [trace_of(f"zone-{place}", 600, zone) for place, zone in enumerate(zones)]


def test_the_shipped_module_is_what_the_script_writes():
    assert TARGET.read_text() == text_of(loads(MODELS))
    assert TARGET.stat().st_size < 100_000


def test_the_shipped_models_are_rates_and_chances():
    mixture = mixture_of(loads(MODELS))
    assert sum(mixture.chances) == pytest.approx(1, abs=0.01)
    assert all(0 < rate < 60 for model in mixture.models for rate in (*model.loss, *model.back))
    assert all(model.loss[0] > 10 * model.loss[-1] for model in mixture.models)  # old machines live on


def test_the_same_traces_give_the_same_text():
    texts = {hashlib.sha256(text_of(fit(traces())).encode()).hexdigest() for _ in range(2)}
    assert len(texts) == 1


def test_a_fit_finds_the_rates_that_the_traces_were_drawn_with():
    trace = trace_of("zone", 600, flickering(Draws(5), 20_000, leaves=0.05, returns=0.2))
    (model,) = fit([trace], models=1)["models"]
    assert model["loss"][0] == pytest.approx(0.05 * 6, rel=0.2)
    assert model["back"][0] == pytest.approx(0.2 * 6, rel=0.2)


def test_counting_sees_each_change_once_and_at_its_age():
    seen = count(bytes([1, 1, 0, 0, 1, 0]), tick_h=1.0)
    assert sum(seen.changes) == 3
    assert sum(seen.hours) == 5
    assert seen.changes[5] == 1  # the first loss, an hour after a begin that counts as two hours old
