"""A short run of the lab in `tests/soak/lab.py`: two people, one ledger, two accounts of AWS under one name."""

from __future__ import annotations

import pytest

from tests.soak.lab_small import small

SEED, STEPS = 5, 40


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_the_ledgers_word_is_the_clouds_truth_whoever_does_what(postgres, tmp_path):
    lab = small(SEED, "ada ben", tmp_path, postgres.schema()).live(STEPS)
    assert not lab.faults, "\n".join([f"seed {SEED}:", *lab.faults[:10], *lab.log])
    assert lab.seen["bills that are exact"] > 2
    assert lab.seen["sums that are exact"] > 2
    assert min(lab.seen[verb] for verb in ("up", "stop", "start", "down", "reap", "proofs")) > 0
