from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.spend_stores import KINDS, SHARED_KINDS, Kept, kept_in


@pytest.fixture(params=KINDS)
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    """Each of the four stores, new and empty."""
    async with kept_in(request.param, request, tmp_path) as new:
        yield new


@pytest.fixture(params=["memory", "sqlite"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    """A store of each make, in memory and on a store of runs: for rules, whose code is the same in all."""
    async with kept_in(request.param, request, tmp_path) as new:
        yield new


@pytest.fixture(params=SHARED_KINDS)
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    """Each of the stores that processes can share, new and empty."""
    async with kept_in(request.param, request, tmp_path) as new:
        yield new
