"""Contracts: types and conditions of a step's inputs and output, checked at the boundary of the step."""

from fastroai.contracts.annotations import adapter_of as adapter_of
from fastroai.contracts.contract import Check, Contract
from fastroai.contracts.registry import ContractRegistry

__all__ = [
    "Check",
    "Contract",
    "ContractRegistry",
]
