"""Random pipelines, and what must come of them: written without anything of FastroAI's."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Schedule:
    """Steps with their needs and fates. Times are whole seconds, so that they can be compared."""

    needs: dict[str, tuple[str, ...]]
    """In declaration order, which is any."""
    seconds: dict[str, int]
    failing: frozenset[str]
    exempt: frozenset[str]
    limit: int | None

    @property
    def stopping(self) -> frozenset[str]:
        """Steps whose failure stops the run."""
        return self.failing - self.exempt


@st.composite
def schedules(
    draw: st.DrawFn, *, stops: bool = True, limited: bool = True, shortest: int = 0, size: int = 12
) -> Schedule:
    """Any directed graph without cycles; with `stops=False`, no failure stops the run."""
    count = draw(st.integers(1, size))
    names = [f"s{number}" for number in range(count)]
    needs = {
        name: tuple(draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=4)))
        if number
        else ()
        for number, name in enumerate(names)
    }
    declared = draw(st.permutations(names))
    failing = frozenset(draw(st.sets(st.sampled_from(names), max_size=3)))
    return Schedule(
        needs={name: needs[name] for name in declared},
        seconds={name: draw(st.integers(shortest, 6)) for name in names},
        failing=failing,
        exempt=frozenset(draw(st.sets(st.sampled_from(names)))) if stops else frozenset(names),
        limit=draw(st.none() | st.integers(1, 4)) if limited else None,
    )


@dataclass
class Expected:
    """What happens when nothing stops the run and nothing limits it."""

    started: dict[str, int]
    finished: dict[str, int]
    skipped: set[str]

    @property
    def makespan(self) -> int:
        """The length of the critical path."""
        return max(self.finished.values(), default=0)


def interpret(schedule: Schedule) -> Expected:
    """A step starts when all that it needs has finished; one that needs a failed one is skipped."""
    expected = Expected({}, {}, set())

    def finish_of(name: str) -> int | None:
        if name in expected.skipped:
            return None
        if name not in expected.finished:
            ends = [finish_of(before) for before in schedule.needs[name]]
            if None in ends or any(before in schedule.failing for before in schedule.needs[name]):
                expected.skipped.add(name)
                return None
            expected.started[name] = max((end for end in ends if end is not None), default=0)
            expected.finished[name] = expected.started[name] + schedule.seconds[name]
        return expected.finished[name]

    for name in schedule.needs:
        finish_of(name)
    return expected
