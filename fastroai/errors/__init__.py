"""The one tree of exceptions.

    FastroAIError
    ├── ConfigurationError (ValueError)          an option has an invalid value
    │   └── CompileError                         ... in a typed function, contract or flow
    ├── ExpressionError (ValueError)             a text that is not a condition, or cannot be evaluated
    ├── UnknownModelError (ValueError)           a model reference whose provider cannot be told
    ├── MissingExtraError (ImportError)          an optional dependency is not installed
    ├── PipelineValidationError (ValueError)     a pipeline that cannot run, with every problem at once
    ├── GraphValidationError (ValueError)        ... or a graph
    ├── WorkflowValidationError (ValueError)     ... or a workflow spec
    ├── UnknownPipelineError (KeyError)          a router was asked for a name that is not registered
    ├── MissingInputError (KeyError)             a step asked for an input that the run was not given
    ├── InputTypeError (TypeError)               an input is not of the type that was asked for
    ├── MissingDependencyError (KeyError)        a step asked for an output that it cannot have
    ├── DependencyTypeError (TypeError)          an output is not of the type that was asked for
    ├── StepExecutionError                       a step failed; `original_error` is why
    ├── GraphStopped                             a graph ended without the output that was asked for
    ├── MemoryConflict                           two branches of a graph wrote one key
    ├── VisitsExhausted                          every node of a cycle has reached its max_visits
    ├── RecordedError                            an exception of an earlier process, as far as it is on record
    ├── ContractViolation                        inputs or output of a step do not fit its contract
    │   ├── PreconditionFailed                   ... inputs of a typed function do not meet its `given`
    │   ├── PostconditionFailed                  ... or its output not its `ensure`, after the last attempt
    │   └── ParseFailure                         ... or its output is not of the declared type
    ├── ResultRejected                           the result of a step of a workflow did not pass its checks
    ├── ConvergenceFailure                       a refinement was not good enough after its last iteration
    ├── ConsensusFailure                         too few members of a quorum agree
    ├── StabilityAssertionError (AssertionError) samples of one answer differ more than a test allows
    ├── ParallelFailed                           too many coroutines of `parallel` or `race` failed
    ├── ParallelValidationFailed                 the outputs of `parallel` do not pass its `validate`
    ├── FlowStopped                              a run of a flow has no output yet
    ├── FlowDiverged                             a resumed flow makes other calls than those on record
    ├── JudgeEscalated                           a judge said that an agent's output cannot be made good
    ├── JudgeNotSatisfied                        ... or accepted none of its outputs
    ├── TimeLimitExceeded (TimeoutError)         a timeout ran out
    ├── AnswerCutError                           an answer broke off before its end
    ├── DispatchSkippedError                     a hook said not to dispatch an agent call
    ├── BudgetExceeded                           a budget stopped the run
    │   ├── CostBudgetExceeded                   ... of money
    │   │   └── SpendLimitExceeded               ... of money, shared between runs and processes
    │   ├── TokenBudgetExceeded                  ... of tokens
    │   ├── RequestBudgetExceeded                ... of requests
    │   └── TimeBudgetExceeded                   ... of time
    ├── StoreUnavailable                         a store cannot be reached, or cannot write
    │   ├── SpendStoreUnavailable                ... the store of a SpendLimit
    │   └── RunStoreUnavailable                  ... the store of runs
    ├── RevisionConflict                         another write came first in a store of runs
    ├── RunExists                                a run id that is taken
    ├── RunNotFound (KeyError)                   a run id that the store does not have
    ├── RunInProgress                            the run is running elsewhere
    ├── RunStatusConflict                        the status of the run does not allow the operation
    ├── RunTakenOver                             another process has taken over the run, or it is gone
    ├── RunConflict                              the run has changed since it was read
    ├── RunDefinitionChanged                     the pipeline has changed since the run was started
    ├── CallChangedError                         a call was declared differently when it was stored
    ├── RunCorrupt                               the record of a run cannot be read
    ├── RunFromNewerVersion                      ... or is of a later version
    ├── RunFromOlderVersion                      ... or is of an earlier version
    ├── UnknownFactKind                          ... or has a fact that no imported module declares
    ├── AnswerRejected (ValueError)              an answer does not fit its question
    ├── QuestionClosed                           a question that takes no answer, or none any more
    ├── QuestionTimedOut (TimeoutError)          nobody answered a question in time
    │   └── HumanTimeoutError                    ... a question of `await_human`
    ├── MessageRejected (ValueError)             a message that a run cannot receive
    ├── MessageTimedOut (TimeoutError)           nobody sent a message in time
    ├── OnceInterrupted                          it is unknown whether a side effect happened
    ├── CancelledInside                          a step awaited a task that something else cancelled
    ├── ValueNotStorable (TypeError)             a value that the store could not give back unchanged
    ├── CircuitOpenError                         a circuit breaker lets no requests through
    ├── UnpricedModelError                       a budget of money, and a model without a price
    ├── UnboundedRequestError                    a budget of money, and a request without an upper bound
    ├── UnmeteredRequestError                    a request in a way that the account cannot follow
    ├── PriceUpdateError                         newer prices could not be downloaded
    ├── LangGraphStopped                         a LangGraph graph that is a step stopped before its end
    ├── ScopeClosedError                         a request at or after the end of the run it belongs to
    ├── ForkedScopeError                         spending under a budget of the process that forked this one
    ├── RunningLoopError (RuntimeError)          a sync entry point was called on a running event loop
    └── NoRunningLoopError (RuntimeError)        no event loop of asyncio is running

An error knows the usage of the run until then: `error.usage` for these errors, `usage_of(error)` for any
exception. It also knows the trace of the run that it ended: `error.trace` for these errors,
`fastroai.store.trace_of(error)` for any exception.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.errors.base import ConfigurationError as ConfigurationError
    from fastroai.errors.base import FastroAIError as FastroAIError
    from fastroai.errors.base import FastroAIWarning as FastroAIWarning
    from fastroai.errors.base import NoUsableOutput as NoUsableOutput
    from fastroai.errors.base import Trace as Trace
    from fastroai.errors.base import TraceSource as TraceSource
    from fastroai.errors.base import attach_trace as attach_trace
    from fastroai.errors.base import attach_usage as attach_usage
    from fastroai.errors.base import error_chain as error_chain
    from fastroai.errors.base import records_of as records_of
    from fastroai.errors.base import trace_source_of as trace_source_of
    from fastroai.errors.base import usage_of as usage_of
    from fastroai.errors.budgets import BudgetExceeded as BudgetExceeded
    from fastroai.errors.budgets import CostBudgetExceeded as CostBudgetExceeded
    from fastroai.errors.budgets import CostBudgetExceededError as CostBudgetExceededError
    from fastroai.errors.budgets import RequestBudgetExceeded as RequestBudgetExceeded
    from fastroai.errors.budgets import RequestCause as RequestCause
    from fastroai.errors.budgets import SpendLimitExceeded as SpendLimitExceeded
    from fastroai.errors.budgets import StoppedRun as StoppedRun
    from fastroai.errors.budgets import TimeBudgetExceeded as TimeBudgetExceeded
    from fastroai.errors.budgets import TokenBudgetExceeded as TokenBudgetExceeded
    from fastroai.errors.mistakes import ExpressionError as ExpressionError
    from fastroai.errors.mistakes import ExpressionProblem as ExpressionProblem
    from fastroai.errors.mistakes import MissingExtraError as MissingExtraError
    from fastroai.errors.mistakes import NoRunningLoopError as NoRunningLoopError
    from fastroai.errors.mistakes import PipelineValidationError as PipelineValidationError
    from fastroai.errors.mistakes import RunningLoopError as RunningLoopError
    from fastroai.errors.mistakes import UnknownModelError as UnknownModelError
    from fastroai.errors.mistakes import UnknownPipelineError as UnknownPipelineError
    from fastroai.errors.mistakes import how_to_install as how_to_install
    from fastroai.errors.people import AnswerRejected as AnswerRejected
    from fastroai.errors.people import MessageRejected as MessageRejected
    from fastroai.errors.people import MessageTimedOut as MessageTimedOut
    from fastroai.errors.people import QuestionClosed as QuestionClosed
    from fastroai.errors.people import QuestionTimedOut as QuestionTimedOut
    from fastroai.errors.requests import AnswerCutError as AnswerCutError
    from fastroai.errors.requests import CircuitOpenError as CircuitOpenError
    from fastroai.errors.requests import DispatchSkippedError as DispatchSkippedError
    from fastroai.errors.requests import ForkedScopeError as ForkedScopeError
    from fastroai.errors.requests import PriceUpdateError as PriceUpdateError
    from fastroai.errors.requests import ScopeClosedError as ScopeClosedError
    from fastroai.errors.requests import UnboundedRequestError as UnboundedRequestError
    from fastroai.errors.requests import UnmeteredRequestError as UnmeteredRequestError
    from fastroai.errors.requests import UnpricedModelError as UnpricedModelError
    from fastroai.errors.steps import CancelledInside as CancelledInside
    from fastroai.errors.steps import ContractViolation as ContractViolation
    from fastroai.errors.steps import DependencyTypeError as DependencyTypeError
    from fastroai.errors.steps import Direction as Direction
    from fastroai.errors.steps import InputTypeError as InputTypeError
    from fastroai.errors.steps import LangGraphStopped as LangGraphStopped
    from fastroai.errors.steps import MissingDependencyError as MissingDependencyError
    from fastroai.errors.steps import MissingInputError as MissingInputError
    from fastroai.errors.steps import OnceInterrupted as OnceInterrupted
    from fastroai.errors.steps import RecordedError as RecordedError
    from fastroai.errors.steps import StepExecutionError as StepExecutionError
    from fastroai.errors.steps import TimeLimitExceeded as TimeLimitExceeded
    from fastroai.errors.steps import ViolationDetail as ViolationDetail
    from fastroai.errors.steps import failure_inside as failure_inside
    from fastroai.errors.stores import CallChangedError as CallChangedError
    from fastroai.errors.stores import FlowStopped as FlowStopped
    from fastroai.errors.stores import RevisionConflict as RevisionConflict
    from fastroai.errors.stores import RunConflict as RunConflict
    from fastroai.errors.stores import RunCorrupt as RunCorrupt
    from fastroai.errors.stores import RunDefinitionChanged as RunDefinitionChanged
    from fastroai.errors.stores import RunExists as RunExists
    from fastroai.errors.stores import RunFromNewerVersion as RunFromNewerVersion
    from fastroai.errors.stores import RunFromOlderVersion as RunFromOlderVersion
    from fastroai.errors.stores import RunInProgress as RunInProgress
    from fastroai.errors.stores import RunNotFound as RunNotFound
    from fastroai.errors.stores import RunStatusConflict as RunStatusConflict
    from fastroai.errors.stores import RunStoreUnavailable as RunStoreUnavailable
    from fastroai.errors.stores import RunTakenOver as RunTakenOver
    from fastroai.errors.stores import SpendStoreUnavailable as SpendStoreUnavailable
    from fastroai.errors.stores import StoreUnavailable as StoreUnavailable
    from fastroai.errors.stores import UnknownFactKind as UnknownFactKind
    from fastroai.errors.stores import ValueNotStorable as ValueNotStorable
    from fastroai.errors.texts import nearest as nearest
    from fastroai.errors.texts import nearest_hint as nearest_hint
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(
        __name__,
        unlisted=[
            "Direction",
            "NoUsableOutput",
            "RequestCause",
            "TraceSource",
            "attach_trace",
            "attach_usage",
            "error_chain",
            "failure_inside",
            "how_to_install",
            "nearest",
            "nearest_hint",
            "trace_source_of",
        ],
        moved_to=["fastroai.functions.errors", "fastroai.graphs.errors", "fastroai.workflows.errors"],
    )
