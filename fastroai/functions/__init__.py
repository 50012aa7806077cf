"""Typed AI functions: a signature and a contract, whose implementation is a model."""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.errors import CompileError as CompileError
    from fastroai.errors import ConsensusFailure as ConsensusFailure
    from fastroai.errors import ConvergenceFailure as ConvergenceFailure
    from fastroai.errors import FailedAttempt as FailedAttempt
    from fastroai.errors import FlowDiverged as FlowDiverged
    from fastroai.errors import HumanTimeoutError as HumanTimeoutError
    from fastroai.errors import ParallelFailed as ParallelFailed
    from fastroai.errors import ParallelValidationFailed as ParallelValidationFailed
    from fastroai.errors import ParseFailure as ParseFailure
    from fastroai.errors import PostconditionFailed as PostconditionFailed
    from fastroai.errors import PreconditionFailed as PreconditionFailed
    from fastroai.errors import StabilityAssertionError as StabilityAssertionError
    from fastroai.functions.contract import contract as contract
    from fastroai.functions.opaque import opaque as opaque
    from fastroai.functions.prompt import CompiledPrompt as CompiledPrompt
    from fastroai.functions.schemas import hash_of as hash_of
    from fastroai.functions.schemas import schema_of as schema_of

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".contract": ("contract",),
        ".opaque": ("opaque",),
        ".prompt": ("CompiledPrompt",),
        ".schemas": ("hash_of", "schema_of"),
        "fastroai.errors": (
            "CompileError",
            "ConsensusFailure",
            "ConvergenceFailure",
            "FailedAttempt",
            "FlowDiverged",
            "HumanTimeoutError",
            "ParallelFailed",
            "ParallelValidationFailed",
            "ParseFailure",
            "PostconditionFailed",
            "PreconditionFailed",
            "StabilityAssertionError",
        ),
    },
)
