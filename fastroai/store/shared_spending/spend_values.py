"""Accounts of spending as values of a store of runs."""

from __future__ import annotations

from typing import Final

from fastroai.store.row_codec import RowCodec
from fastroai.usage.shared.spend_rows import AccountRow

_CODEC: Final = RowCodec(AccountRow, 2)


def encode_account(row: AccountRow) -> bytes:
    """Return an account as it is stored, with its earlier windows packed."""
    row.pack()
    return _CODEC.encode(row)


def decode_account(value: bytes) -> AccountRow:
    """Return the account that was stored.

    Raises:
        ValueError: the value is damaged, or was not written by this version of FastroAI.
    """
    return _CODEC.decode(value)
