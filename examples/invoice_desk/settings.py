"""Settings of the service, from the environment of its worker processes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """The settings of a worker. All workers of a service have the same."""

    folder: Path
    """Where the two SQLite files are. Not in `/tmp`, or any folder that is cleaned automatically."""
    daily_usd: Decimal = Decimal("1.00")
    """The most that each customer may spend in a day, in US dollars."""
    invoice_usd: Decimal = Decimal("0.05")
    """The most that an invoice may cost."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """Read `DESK_FOLDER`, and `DESK_DAILY_USD` and `DESK_INVOICE_USD` if they are set."""
        return cls(
            Path(environment["DESK_FOLDER"]),
            Decimal(environment.get("DESK_DAILY_USD", cls.daily_usd)),
            Decimal(environment.get("DESK_INVOICE_USD", cls.invoice_usd)),
        )
