"""Which steps are before which, in pipelines of any shape."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastroai.steps.ancestry import Ancestry

SHAPES = st.integers(1, 12).flatmap(
    lambda size: st.tuples(
        *(
            st.sets(st.integers(0, number - 1), max_size=4) if number else st.just(set[int]())
            for number in range(size)
        )
    )
)


@given(SHAPES)
def test_a_step_is_before_those_that_a_walk_over_dependencies_finds_it_from(
    shape: tuple[set[int], ...],
) -> None:
    needs = {f"s{number}": tuple(f"s{need}" for need in sorted(given)) for number, given in enumerate(shape)}
    ancestors: dict[str, set[str]] = {}
    for step_id, direct in needs.items():
        ancestors[step_id] = set(direct).union(*(ancestors[need] for need in direct))
    ancestry = Ancestry(dict(reversed(needs.items())))
    for step_id in needs:
        for of in needs:
            assert ancestry.is_before(step_id, of) == (step_id in ancestors[of])


def test_in_a_circle_nothing_is_refused() -> None:
    circle = Ancestry({"a": ("b",), "b": ("a",), "c": ()})
    assert circle.is_before("a", "b")
    assert circle.is_before("b", "a")
