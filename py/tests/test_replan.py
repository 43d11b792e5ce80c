"""A method planned anew gives the same numbers in fewer bytes, or says why it cannot be."""

import numpy as np
import pytest

import arenite as ar

from conftest import DATA


@pytest.mark.parametrize("how", ["greedy", "best"])
def test_a_new_plan_changes_no_output(how):
    program = ar.Runtime.get().load_program(DATA / "cases/h15_three_memory_ids.pte")
    arrays = np.load(DATA / "cases/h15_three_memory_ids.npz")
    file, new = program.load_method("forward"), program.load_method("forward", replan=how)
    assert np.array_equal(file.execute([arrays["a0"]])[0], new.execute([arrays["a0"]])[0])
    before, after = (m.memory_report().to_dict()["spaces"]["host"] for m in (file, new))
    assert after["planned_bytes"] < before["planned_bytes"] == after["file_bytes"]
    assert after["planned_bytes"] == after["lower_bound_bytes"]
    assert "planned anew" in str(new.memory_report())


def test_control_flow_is_refused_with_the_reason():
    program = ar.Runtime.get().load_program(DATA / "cases/h11_cond_and_map.pte")
    with pytest.raises(ar.PlanError, match="cannot be planned anew: it has jumps"):
        program.load_method("forward", replan="best")


def test_an_unknown_plan_is_named():
    program = ar.Runtime.get().load_program(DATA / "seed_net.pte")
    with pytest.raises(ValueError, match="'best', 'greedy' or None|\"best\", \"greedy\" or None"):
        program.load_method("forward", replan="fast")
