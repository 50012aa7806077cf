"""The units of a run: whatever is packed, all of them are told in the order in which they started."""

from __future__ import annotations

from fastroai.runs.running.units import BegunUnit, BegunUnits

MANY = 100


def unit(step_id: str, number: int) -> BegunUnit:
    begun = BegunUnit(step_id, number, None, float(number), duration_ms=0.5 + number, is_over=True)
    match number % 10:
        case 3:
            begun.error = ValueError("no")
        case 4:
            begun.degraded = True
        case 5:
            begun.attempt = 2
        case 6:
            begun.is_over = False
        case _:
            pass
    return begun


def test_packed_units_are_told_among_the_others_in_the_order_in_which_they_started() -> None:
    units = BegunUnits()
    made = {(step_id := "ab"[number % 2], number): unit(step_id, number) for number in range(MANY)}
    for late in range(2):  # those of one half end while the other half has not begun
        units.open.update({key: one for key, one in made.items() if key[1] % 2 == late})
        units.pack()
    assert [*units.items()] == [*made.items()]


def test_only_times_are_packed() -> None:
    units = BegunUnits()
    made = {("a", number): unit("a", number) for number in range(MANY)}
    units.open.update(made)
    units.pack()
    assert {number % 10 for _, number in units.open} == {3, 4, 5, 6}
    assert units.pack_above > len(units.open)
    assert all(units.open[key] is made[key] for key in units.open)
