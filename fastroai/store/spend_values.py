"""Accounts of spending as values of a store of runs."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final, Literal, TypeAlias, get_args

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from fastroai.store.checksums import with_checksum, without_checksum
from fastroai.usage.spend_rows import AccountRow, ClaimRow, ClaimRows, ClaimState, WindowRow, WindowRows
from fastroai.usage.spend_rules import WINDOWS_KEPT
from fastroai.usage.spend_store import SpendAdjustment

FORMAT: Final = 1
_LARGE: Final = 4096
"""Bytes of JSON from which a value is compressed."""
_COMPRESSED: Final = b"zlib "
_STATES: Final[Sequence[ClaimState]] = get_args(ClaimState)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_Time: TypeAlias = int | None
"""Seconds since 1970."""
_Claim: TypeAlias = tuple[str, int, int, float, int, int | None, str]
"""Id, number of the state, amount, end of the lease, number of the holder, window, `within`."""
_Window: TypeAlias = tuple[
    int, _Time, int, int, int, int | None, list[tuple[int, int, str]], list[SpendAdjustment]
]
"""Number, end, spent and reserved amounts, limit, limit by hand, told shares, and changes by hand."""


class _Stored(TypedDict):
    format: Literal[1]
    steady: float
    closes_at: _Time
    charged: int
    keep: float
    holders: list[str]
    claims: list[_Claim]
    windows: list[_Window]
    earlier: str
    """The windows before, compressed: there can be thousands, which are as they were at nearly every use."""


def encode_account(row: AccountRow) -> bytes:
    """Return an account as it is stored."""
    windows, earlier = row.windows.read, row.windows.unread
    if not isinstance(earlier, _Earlier):
        first = min(row.charged, windows[-1].number - WINDOWS_KEPT + 1)
        earlier = _Earlier.of([window for window in windows if window.number < first])
        windows = [window for window in windows if window.number >= first]
    numbers = {holder: number for number, holder in enumerate({claim.holder: 0 for claim in row.claims.all})}
    stored = _Stored(
        format=FORMAT,
        steady=row.steady,
        closes_at=_from_time(row.closes_at),
        charged=row.charged,
        keep=row.keep.total_seconds(),
        holders=list(numbers),
        claims=[_from_claim(claim, numbers[claim.holder]) for claim in row.claims.all],
        windows=[_from_window(window) for window in windows],
        earlier=earlier.packed,
    )
    text = _accounts().dump_json(stored)
    if len(text) >= _LARGE:
        text = _COMPRESSED + zlib.compress(text, zlib.Z_BEST_SPEED)
    return with_checksum(text)


def decode_account(value: bytes) -> AccountRow:
    """Return the account that was stored.

    Raises:
        ValueError: the value is damaged, or was not written by this version of FastroAI.
    """
    text = without_checksum(value)
    if text.startswith(_COMPRESSED):
        text = zlib.decompress(text.removeprefix(_COMPRESSED))
    try:
        stored = _accounts().validate_json(text)
    except ValidationError as error:
        raise ValueError(f"this version of FastroAI, with format {FORMAT}, cannot read it") from error
    holders, earlier = stored["holders"], _Earlier(stored["earlier"])
    return AccountRow(
        stored["steady"],
        _to_time(stored["closes_at"]),
        stored["charged"],
        WindowRows(map(_to_window, stored["windows"]), earlier if earlier.packed else None),
        ClaimRows(
            ClaimRow(claim_id, _STATES[state], amount, lease_until, holders[holder], window, within)
            for claim_id, state, amount, lease_until, holder, window, within in stored["claims"]
        ),
        timedelta(seconds=stored["keep"]),
    )


@dataclass(frozen=True, slots=True)
class _Earlier:
    """The windows of an account before the last ones."""

    packed: str

    @classmethod
    def of(cls, windows: Sequence[WindowRow]) -> _Earlier:
        """Pack windows."""
        if not windows:
            return cls("")
        text = _windows().dump_json([_from_window(window) for window in windows])
        return cls(base64.b85encode(zlib.compress(text, zlib.Z_BEST_SPEED)).decode())

    def __call__(self) -> Iterable[WindowRow]:
        """Unpack them."""
        text = zlib.decompress(base64.b85decode(self.packed))
        return map(_to_window, _windows().validate_json(text))


@cache
def _accounts() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


@cache
def _windows() -> TypeAdapter[list[_Window]]:
    return TypeAdapter(list[_Window])


def _from_claim(row: ClaimRow, holder: int) -> _Claim:
    lease_until = round(row.lease_until, 3)
    return row.id, _STATES.index(row.state), row.amount, lease_until, holder, row.window, row.within


def _from_window(row: WindowRow) -> _Window:
    told = [(share, limit, claim_id) for (share, limit), claim_id in row.told.items()]
    amounts = row.spent, row.reserved, row.limit, row.set_limit
    return row.number, _from_time(row.closes_at), *amounts, told, list(row.adjustments)


def _to_window(stored: _Window) -> WindowRow:
    number, closes_at, spent, reserved, limit, set_limit, told, adjustments = stored
    shares = {(share, of): claim_id for share, of, claim_id in told}
    return WindowRow(
        number, _to_time(closes_at), spent, reserved, limit, set_limit, shares, tuple(adjustments)
    )


def _from_time(time: datetime | None) -> _Time:
    return None if time is None else round(time.timestamp())


def _to_time(seconds: _Time) -> datetime | None:
    return None if seconds is None else _EPOCH + timedelta(seconds=seconds)
