"""What `down` ends: each machine once, however it is named."""

from __future__ import annotations

from cloudgpu.control.api.down import machines_to_end


def test_a_machine_that_is_named_by_its_name_and_its_id_is_ended_and_counted_once(lab):
    fox, owl = (lab.up(name=name, key=name).machine for name in ("fox", "owl"))
    found = machines_to_end(lab.session, [fox.name, owl.name, fox.id])
    assert [machine.name for machine in found.machines] == ["fox", "owl"]
