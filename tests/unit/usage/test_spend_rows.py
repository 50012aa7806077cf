from __future__ import annotations

from fastroai.usage.shared.spend_rows import AccountRow, WindowRow


def test_no_window_is_lost_that_is_packed_again_and_again() -> None:
    row = AccountRow(0.0, None, 9, windows={number: WindowRow(None) for number in range(1, 10)}, claims={})
    row.pack()
    assert list(row.windows) == [6, 7, 8, 9]
    row.windows |= {number: WindowRow(None) for number in (10, 11)}
    row.charged = 11
    row.pack()
    assert list(row.windows) == [8, 9, 10, 11]
    assert list(row.all_windows()) == list(range(1, 12))
