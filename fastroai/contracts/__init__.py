"""Contracts: what a step takes and gives, and what must hold of it, checked at its boundary."""

from fastroai.contracts.annotations import adapter_of
from fastroai.contracts.contract import Check, Contract
from fastroai.contracts.registry import ContractRegistry

__all__ = ["Check", "Contract", "ContractRegistry", "adapter_of"]
