"""Several machines as one: the published formulas at examples worked by hand, and the chance that a gang is lost."""

from __future__ import annotations

import pytest

from cloudgpu.core.clusters.scaling import (
    GangLoss,
    Training,
    TypeNetwork,
    Verdict,
    figure,
    gang_loss,
    gang_sentence,
    loss_an_hour,
    plan_remark,
    scaling_estimate,
    worth_sentence,
)

# Parameters in thousand millions, machines, dense bf16 TFLOPs of the GPU, Gbit/s; seconds, seconds, and times one
# machine with and without overlap, worked by hand: 8,192 tokens, 40% of the peak, 80% of the network.
RTX4090, A100, H100 = 165.2, 312.0, 989.0
EXAMPLES = {
    "two own 4090, 1 Gbit/s": ((1.3, 2, RTX4090, 1), (0.97, 26, 0.073, 0.072)),
    "two own 4090, 10 Gbit/s": ((1.3, 2, RTX4090, 10), (0.97, 2.6, 0.66, 0.54)),
    "two own 4090, EDR": ((1.3, 2, RTX4090, 100), (0.97, 0.26, 2.0, 1.58)),
    "4 x p4d": ((7, 4, A100, 400), (2.76, 0.53, 4.0, 3.36)),
    "4 x ND96asr_v4, InfiniBand": ((7, 4, A100, 1600), (2.76, 0.13, 4.0, 3.82)),
    "4 x ND96asr_v4, Ethernet": ((7, 4, A100, 24), (2.76, 8.75, 1.14, 0.96)),
    "4 x p5": ((7, 4, H100, 3200), (0.87, 0.066, 4.0, 3.72)),
    "4 x p5, 100 Gbit/s": ((7, 4, H100, 100), (0.87, 2.1, 1.46, 1.17)),
}


def worth(billions, nodes, peak, gbit, **more):
    return scaling_estimate(Training(billions * 1e9, more.pop("trained", billions) * 1e9, **more), nodes, peak, gbit)


@pytest.mark.parametrize(("given", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_the_worked_examples_come_out_to_two_digits(given, expected):
    found = worth(*given)
    figures = (found.compute_s, found.traffic_s, found.speed_up, found.without_overlap)
    for number, wanted in zip(figures, expected, strict=True):
        assert float(f"{number:.2g}") == float(f"{wanted:.2g}")


def test_40_gbit_per_s_hide_the_traffic_of_two_4090():
    slow = worth(1.3, 2, RTX4090, 10)
    assert round(slow.gbit_to_hide_traffic) == 40
    assert worth(1.3, 2, RTX4090, slow.gbit_to_hide_traffic).speed_up == pytest.approx(2)
    assert worth(1.3, 2, RTX4090, slow.gbit_to_hide_traffic * 0.99).speed_up < 2


def test_a_result_costs_as_many_times_more_as_the_machines_gain_less():
    found = worth(7, 4, H100, 100)
    assert found.cost_factor == pytest.approx(4 / found.speed_up)
    assert f"{found.cost_factor:.2f}" == "2.75"


def test_slower_than_one_machine_is_said_first():
    said = worth_sentence(worth(1.3, 2, RTX4090, 10))
    assert said == (
        "Slower than one machine: 2 machines are 0.66 times as fast as one, and each result costs 3.02 times as much. "
        "40 Gbit/s would hide the traffic."
    )
    assert worth_sentence(worth(7, 4, H100, 100)).startswith("Poor: 4 machines are 1.46 times as fast as one")
    assert worth_sentence(worth(7, 4, A100, 400)) == (
        "4 machines are 4.00 times as fast as one (3.36 without overlap), and each result costs 1.00 times as much."
    )


def test_a_verdict_changes_at_one_machine_and_at_four_fifths_of_all():
    by_gbit = [worth(7, 4, A100, gbit).verdict for gbit in (19, 22, 80, 90)]
    assert by_gbit == [Verdict.SLOWER, Verdict.POOR, Verdict.POOR, Verdict.GOOD]
    for verdict, gbit in zip(by_gbit, (19, 22, 80, 90), strict=True):
        times = worth(7, 4, A100, gbit).speed_up
        assert verdict is (Verdict.SLOWER if times <= 1 else Verdict.POOR if times < 3.2 else Verdict.GOOD)


def test_the_size_of_the_model_changes_no_speed_up_and_its_tokens_do():
    assert worth(70, 4, A100, 24).speed_up == pytest.approx(worth(7, 4, A100, 24).speed_up)
    assert worth(7, 4, A100, 24, tokens=32768).speed_up > worth(7, 4, A100, 24).speed_up


def test_few_trained_parameters_send_almost_nothing_and_save_their_gradients():
    lora = worth(7, 2, RTX4090, 1, trained=0.04)
    assert lora.traffic_s == pytest.approx(0.04e9 * 16 / 0.8e9)
    assert lora.compute_s / worth(7, 2, RTX4090, 1).compute_s == pytest.approx((4 * 7 + 2 * 0.04) / 42)
    assert lora.speed_up == pytest.approx(2)


@pytest.mark.parametrize("given", [(7, 1, 312, 10), (7, 0, 312, 10), (7, 4, 0, 10), (7, 4, 312, 0), (0, 4, 312, 10)])
def test_figures_that_are_none_are_refused(given):
    with pytest.raises(ValueError, match="above zero"):
        worth(*given)


def test_five_per_cent_an_hour_for_one_are_18_and_a_half_for_four():
    assert f"{gang_loss(0.05, 4):.1%}" == "18.5%"
    assert (gang_loss(0.05, 1), gang_loss(0.0, 64), gang_loss(1.0, 2)) == (pytest.approx(0.05), 0, 1)
    assert gang_sentence(GangLoss(4, "hour", (0.05, 0.05), "--spot-loss")) == (
        "Any loss restarts all 4: the chance is 18.5% in each hour, with 5.0% for one machine (--spot-loss)."
    )


def test_a_range_stays_a_range():
    assert "28% to 36% in each month, with 15% to 20%" in gang_sentence(GangLoss(2, "month", (0.15, 0.2), "x"))
    assert "at most 10% in each month, with at most 5%" in gang_sentence(GangLoss(2, "month", (0.0, 0.05), "x"))
    assert "at least 36% in each month, with at least 20%" in gang_sentence(GangLoss(2, "month", (0.2, 1.0), "x"))


def test_a_chance_of_an_hour_comes_from_losses_in_hours():
    assert loss_an_hour(0, 100) == 0
    assert loss_an_hour(5, 100) == pytest.approx(0.0488, abs=1e-4)


def test_the_remark_of_a_plan_needs_no_model_and_says_what_is_missing():
    network = TypeNetwork(400.0, None, "EFA", "4 EFA interfaces", "a list", "2026-10-27")
    remark = plan_remark(4, "p4d.24xlarge", A100, network)
    assert remark.startswith("4 machines are 4.00 times as fast as one (3.36 without overlap)")
    assert "8,192 tokens per GPU and step over 400 Gbit/s" in remark
    assert remark.endswith("cloudgpu estimate --nodes 4 --instance-type p4d.24xlarge --params 7B")
    unknown = plan_remark(2, "box", A100, None)
    assert unknown.startswith("Whether 2 machines are worth it is not known: the network of box is in no list.")
    assert unknown.endswith("--network GBIT")
    assert "the GPU's peak of g4ad.xlarge is in no list" in plan_remark(2, "g4ad.xlarge", None, network)
    slow = TypeNetwork(1.0, 10.0, "Ethernet", "", "a list", "2026-10-27")
    assert plan_remark(2, "g5.xlarge", A100, slow).startswith("Slower than one machine")


def test_a_network_says_whether_it_is_from_memory():
    assert TypeNetwork(24.0, None, "Ethernet", "recalled", "recalled", "2026-11-26").is_unverified
    assert not TypeNetwork(24.0, None, "Ethernet", "", "a list", "2026-11-26").is_unverified


def test_figures_have_two_places_below_ten():
    assert [figure(number) for number in (0.066, 3.7, 26.0, 1600.0)] == ["0.07", "3.70", "26", "1,600"]
