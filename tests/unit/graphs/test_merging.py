from fastroai.graphs.machine.branches import Branch, Fork
from fastroai.graphs.machine.merging import merge_errors


def test_a_failure_after_the_fork_stays_the_latest_one() -> None:
    around = Branch("a")
    fork = Fork(around, "a", 1, None)
    inside = Branch("b", fork)
    fork.branches = (inside,)
    around.errors.write("n", "before", "n", 1)
    inside.errors.write("n", "in the branch", "n", 2)
    inside.errors.write("m", "in the branch", "m", 3)
    merge_errors(around, [inside])
    assert dict(around.errors) == {"n": "in the branch", "m": "in the branch"}
    around.errors.write("n", "when it was cut short", "n", 4)
    merge_errors(around, [inside])
    assert dict(around.errors) == {"n": "when it was cut short", "m": "in the branch"}
