"""`ContractRegistry`: contracts by the ids of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastroai.contracts.contract import Contract
from fastroai.errors import ConfigurationError
from fastroai.other_names import other_names


@other_names(attributes={"register": "ContractRegistry({step_id: Contract(…)})"})
class ContractRegistry(Mapping[str, Contract]):
    """Contracts by step id, apart from the steps: `Pipeline(..., contracts=registry)`.

        contracts = ContractRegistry({
            "extract": Contract(returns=Order),
            "total": Contract(accepts={"extract": Order}, ensure=[is_positive]),
        })

    A contract here overrides that of the step, in the fields that it sets. The registry is a mapping that
    cannot be changed. A pipeline refuses the id of a step that it does not have.

    Raises:
        ConfigurationError: a value is not a Contract.
    """

    def __init__(self, contracts: Mapping[str, Contract]) -> None:
        for step_id, contract in contracts.items():
            if not isinstance(contract, Contract):
                raise ConfigurationError(f"contracts[{step_id!r}]", contract, "a Contract")
        self._contracts = dict(contracts)

    def __repr__(self) -> str:
        return f"ContractRegistry({self._contracts!r})"

    def __getitem__(self, step_id: str) -> Contract:
        """Return the contract of a step. Raises KeyError if it has none."""
        return self._contracts[step_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contracts)

    def __len__(self) -> int:
        return len(self._contracts)
