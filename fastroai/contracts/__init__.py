"""Contracts: types and conditions of a step's inputs and output, checked at the boundary of the step."""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.contracts.annotations import adapter_of as adapter_of
    from fastroai.contracts.contract import Check as Check
    from fastroai.contracts.contract import Contract as Contract
    from fastroai.contracts.contract import ContractRegistry as ContractRegistry
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(__name__, unlisted=["adapter_of"])
