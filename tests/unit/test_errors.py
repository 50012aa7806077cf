import inspect
import pickle
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from fastroai import errors, functions, graphs, workflows
from fastroai.errors import (
    AnswerCutError,
    AnswerRejected,
    BudgetExceeded,
    CallChangedError,
    CancelledInside,
    CircuitOpenError,
    ConfigurationError,
    ContractViolation,
    CostBudgetExceeded,
    CostBudgetExceededError,
    DependencyTypeError,
    DispatchSkippedError,
    ExpressionError,
    ExpressionProblem,
    FastroAIError,
    FastroAIWarning,
    FlowStopped,
    ForkedScopeError,
    InputTypeError,
    LangGraphStopped,
    MessageRejected,
    MessageTimedOut,
    MissingDependencyError,
    MissingExtraError,
    MissingInputError,
    NoRunningLoopError,
    OnceInterrupted,
    PipelineValidationError,
    PriceUpdateError,
    QuestionClosed,
    QuestionTimedOut,
    RecordedError,
    RequestBudgetExceeded,
    RevisionConflict,
    RunConflict,
    RunCorrupt,
    RunDefinitionChanged,
    RunExists,
    RunFromNewerVersion,
    RunFromOlderVersion,
    RunInProgress,
    RunningLoopError,
    RunNotFound,
    RunStatusConflict,
    RunStoreUnavailable,
    RunTakenOver,
    ScopeClosedError,
    SpendLimitExceeded,
    SpendStoreUnavailable,
    StepExecutionError,
    StoppedRun,
    StoreUnavailable,
    TimeBudgetExceeded,
    TimeLimitExceeded,
    TokenBudgetExceeded,
    UnboundedRequestError,
    UnknownFactKind,
    UnknownModelError,
    UnknownPipelineError,
    UnmeteredRequestError,
    UnpricedModelError,
    ValueNotStorable,
    ViolationDetail,
    attach_usage,
    error_chain,
    nearest_hint,
    records_of,
    usage_of,
)
from fastroai.functions.errors import (
    CompileError,
    ConsensusFailure,
    ConvergenceFailure,
    FailedAttempt,
    FlowDiverged,
    HumanTimeoutError,
    ParallelFailed,
    ParallelValidationFailed,
    ParseFailure,
    PostconditionFailed,
    PreconditionFailed,
    StabilityAssertionError,
)
from fastroai.graphs.errors import (
    GraphProblem,
    GraphStopped,
    GraphValidationError,
    JudgeEscalated,
    JudgeNotSatisfied,
    MemoryConflict,
    VisitsExhausted,
)
from fastroai.records import RequestRecord, Usage
from fastroai.runtime import LongTimeoutWarning
from fastroai.usage import NearMissWarning, UnpricedModelWarning
from fastroai.usage.prices.tested_version import UntestedVersionWarning
from fastroai.workflows.errors import ResultRejected, WorkflowProblem, WorkflowValidationError

SPENT = Usage(request_count=2, cost_usd=Decimal("0.0123"))
RECORDS = (RequestRecord(model="m", provider="p", outcome="settled", cost_usd=Decimal("0.0123")),)
MESSAGES: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("hello")])]

CUT = CostBudgetExceeded(500_000, 498_000, "s", 9_000, ("p",))
CUT.partial_response = ModelResponse(parts=[TextPart("Once upon")])
CUT.stopped_runs = [StoppedRun("inner", []), StoppedRun("writer", MESSAGES)]
SHARED = SpendLimitExceeded(5_000_000, 4_990_000, None, 20_000, ("p",))
SHARED.key, SHARED.window, SHARED.resets_at = "tenant", "day", datetime(2026, 3, 2, tzinfo=UTC)

EXAMPLES: list[tuple[FastroAIError, str]] = [
    (FastroAIError("something"), "something"),
    (ConfigurationError("retries", -1, "0 or more"), "retries=-1: expected 0 or more"),
    (
        ExpressionError("a ** 2", (ExpressionProblem("no powers", 1, 1),)),
        "expression 'a ** 2': column 1: no powers\n    a ** 2\n    ^",
    ),
    (
        ExpressionError("a\n| b", (ExpressionProblem("one", 2, 1), ExpressionProblem("two"))),
        "expression 'a\\n| b' has 2 problems:\n  - line 2, column 1: one\n  - two",
    ),
    (
        ExpressionError("a.b > 1", (), "a.b"),
        "expression 'a.b > 1': a.b is missing; check has(a.b) first",
    ),
    (ExpressionError("x" * 200, (ExpressionProblem("long", 1, 1),)), "xxx…': column 1: long"),
    (UnknownModelError("llama"), "provider of model 'llama'; write it as 'provider:model'"),
    (UnknownModelError("llama-3", ("groq:llama-3",)), "write it as one of 'groq:llama-3'"),
    (
        MissingExtraError("LogfireTracer", "logfire", "logfire"),
        "needs logfire: pip install 'fastroai-runs[logfire]'",
    ),
    (PipelineValidationError("p", ("no steps",)), "pipeline 'p': no steps"),
    (PipelineValidationError("p", ("one", "two")), "pipeline 'p' has 2 problems:\n  - one\n  - two"),
    (GraphValidationError("g", (GraphProblem("no nodes"),)), "graph 'g': no nodes"),
    (
        GraphValidationError("g", (GraphProblem("one"), GraphProblem("two", ("edges", 0), 4, 7)), "g.yaml"),
        "graph 'g' in g.yaml has 2 problems:\n  - one\n  - line 4, column 7: two",
    ),
    (
        WorkflowValidationError((WorkflowProblem(message="no flows", line=2, column=3),)),
        "workflow spec: line 2, column 3: no flows",
    ),
    (
        WorkflowValidationError((WorkflowProblem(message="a"), WorkflowProblem(message="b")), "w.yaml"),
        "workflow spec w.yaml has 2 problems:\n  - line 1, column 1: a\n  - line 1, column 1: b",
    ),
    (UnknownPipelineError("r", "helo", ("hello",)), "registered: 'hello'. Did you mean 'hello'?"),
    (UnknownPipelineError("r", "x", ()), "registered: none."),
    (MissingInputError("s", "txt", ("text",)), "given: 'text'. Did you mean 'text'? Pass it in inputs"),
    (
        MissingDependencyError("s", "d", "it was skipped"),
        "step 's' asked for the output of 'd': it was skipped",
    ),
    (InputTypeError("s", "k", "int", "str"), "step 's' expected int as input 'k', which is str"),
    (DependencyTypeError("s", "d", "int", "str"), "step 's' expected int from 'd', whose output is str"),
    (
        ContractViolation(
            "total",
            "input",
            (
                {
                    "type": "float_parsing",
                    "loc": ("order", "items", 0, "price"),
                    "msg": "no number",
                    "input": "'a'",
                },
                {"type": "missing", "loc": ("country",), "msg": "Field required"},
            ),
            {"order": {}},
        ),
        "step 'total': its inputs do not fit its contract: "
        "order.items.0.price: no number (got 'a'); country: Field required",
    ),
    (
        CompileError("contract 'Order'", ("field 'a' is Any", "field 'b' is a function")),
        "contract 'Order' has 2 problems:\n  - field 'a' is Any\n  - field 'b' is a function",
    ),
    (
        PreconditionFailed("classify", ("len(text) > 0 (text = '')",), {"text": ""}),
        "function 'classify': what it requires does not hold: len(text) > 0 (text = '')",
    ),
    (
        ResultRejected("draft", "EnsureFailed", ("result.score (0.5) > 0.7 is false",), {"score": 0.5}),
        "step 'draft': the result did not pass its checks: result.score (0.5) > 0.7 is false",
    ),
    (
        PostconditionFailed("classify", ("one", "two"), 0.4, (FailedAttempt(0.1, ("one",)),) * 2),
        "function 'classify': what it ensures does not hold: one; two (after 2 attempts)",
    ),
    (
        ParseFailure("classify", ("confidence: Field required",), "no idea"),
        "function 'classify': its output does not fit its contract: confidence: Field required",
    ),
    (
        ConvergenceFailure("write", (FailedAttempt("draft", ("longer",)),) * 5),
        "function 'write': no output of 5 iterations fulfils until=; they are in error",
    ),
    (
        ConsensusFailure("judge", 1, 2, ("yes", "no")),
        "function 'judge': 1 of 2 outputs agree, and 2 must. ",
    ),
    (
        ConsensusFailure("judge", 1, 2, ("yes",), (RecordedError("ValueError", "bad"),)),
        "1 of 1 outputs agree, and 2 must; 1 failed, the first with RecordedError: bad. error.outputs has",
    ),
    (
        StabilityAssertionError(0.6, 0.9, ("label",), ("a", "a", "a", "b", "c")),
        "60% of 5 samples agree on 'label', and 90% must; error.outputs has them",
    ),
    (
        ParallelFailed(2, 3, (RecordedError("ValueError", "bad"), RecordedError("KeyError", "k"))),
        "2 of 3 coroutines must succeed; 2 failed, the first with RecordedError: bad. error.errors has",
    ),
    (
        ParallelValidationFailed(("the labels differ",), ("a", "b")),
        "the results of parallel do not pass validate: the labels differ",
    ),
    (
        FlowDiverged("triage", "classify(text='a')", "classify(text='b')"),
        "flow 'triage' called classify(text='a') before it was resumed, and now calls classify(text='b'). "
        "A resumed",
    ),
    (
        FlowStopped("triage", "r", "paused", "waits for an answer", ("r:1",)),
        "flow 'triage' is paused: it waits for the answer to r:1. To continue it: await triage.resume('r')",
    ),
    (
        HumanTimeoutError("r:1", datetime(2026, 3, 1, tzinfo=UTC)),
        "nobody answered review 'r:1' until 2026-03-01 00:00:00 UTC; await_human(..., on_timeout=...) "
        "continues",
    ),
    (StepExecutionError("s", ValueError("bad")), "step 's' failed: ValueError: bad"),
    (TimeLimitExceeded("step 's'", 1.5), "step 's' took longer than 1.5 s"),
    (
        AnswerCutError("m", "openai"),
        "the answer of openai:m is incomplete: its stream ended without a finish",
    ),
    (DispatchSkippedError("no credit"), "agent call skipped: no credit"),
    (DispatchSkippedError(), "agent call skipped"),
    (BudgetExceeded(500, 498), "reached: 498 of 500 are used, so the next request was not sent. Raise"),
    (
        CostBudgetExceeded(500_000, 498_000),
        "budget reached: $0.498 of $0.50 is spent, so the next request was not sent. Raise the budget",
    ),
    (
        CostBudgetExceeded(500_000, 498_000, "s", 9_000, ("p", "s")),
        "budget of 'p / s' reached in step 's': $0.498 of $0.50 is spent, and the next request could cost "
        "$0.009, so it was not sent. Set a lower max_tokens or raise the budget",
    ),
    (CUT, "$0.498 of $0.50 is spent; it paid for the beginning of the last answer (error.partial_response)"),
    (
        SHARED,
        "spend limit 'tenant' (day) reached: $4.99 of $5.00 is spent, and the next request could cost $0.02, "
        "so it was not sent. Wait until 2026-03-02 00:00 UTC, or set a lower max_tokens or raise the limit "
        "in code, or for the current window alone with SpendBook.set_limit or `fastroai spend set`",
    ),
    (SpendLimitExceeded(1_234_000_000, 5), "$0.000005 of $1,234.00 is spent, so the next"),
    (
        TokenBudgetExceeded(1_000, 990, "s", 50, ("p",)),
        "budget of 'p' reached in step 's': 990 of 1,000 tokens are used, and the next request could use 50, "
        "so it was not sent. Set a lower max_tokens or raise the budget",
    ),
    (RequestBudgetExceeded(20, 20), "budget reached: 20 of 20 requests are used, so the next"),
    (
        TimeBudgetExceeded(500, 500, None, None, ("p",)),
        "time budget of 500 ms of 'p' is used up; running work was cancelled. Raise the budget",
    ),
    (
        CircuitOpenError("openai", 12.34, "ModelServerError: 500", "writer"),
        "no request was sent to 'openai': it keeps failing, so the circuit breaker of agent 'writer' is "
        "open; the next try "
        "is in 12.3 s; the last failure: ModelServerError: 500. Retry later",
    ),
    (CircuitOpenError("openai", 0.0), "is open; a test request is running. Retry later"),
    (
        SpendStoreUnavailable("RedisSpendStore(...)", "no connection"),
        "spend store RedisSpendStore(...) is unavailable: no connection; check its address, and whether it "
        "is running; SpendLimit(on_unavailable=",
    ),
    (StoreUnavailable("a.db", "it is full", "make room"), "store a.db is unavailable: it is full; make room"),
    (
        RunStoreUnavailable("a.db", "it is full", "make room"),
        "run store a.db is unavailable: it is full; make room. No write is half done. When the store works "
        "again, resume the run if this error stopped one; a call that only reads can be repeated",
    ),
    (
        RevisionConflict("run/1", 2, 3),
        "key 'run/1' is at revision 3, not 2: another process, or an earlier attempt",
    ),
    (RunExists("r", "failed"), "run 'r' is in the store already (failed); continue it with"),
    (
        RunNotFound("r", "a.db"),
        "there is no run 'r' in a.db; check the id (fastroai runs list) and the store, or",
    ),
    (
        RunInProgress("r", "host pid 3", datetime(2026, 3, 2, 12, 30, 5, tzinfo=UTC)),
        "run 'r' is running in host pid 3, which holds it until 12:30:05 UTC at least; wait",
    ),
    (
        RunStatusConflict("r", "finished", "a run that is running, or can be resumed"),
        "run 'r' is finished; expected a run that is running, or can be resumed",
    ),
    (
        RunTakenOver("r"),
        "run 'r' was deleted, or another process has taken it over: by force, or because",
    ),
    (
        RunConflict("r", 7),
        "run 'r' is no longer at revision 7: another call has reported to it or resumed it. This call has "
        "stored nothing. Read the run again, then decide",
    ),
    (
        RunDefinitionChanged("r", ("step 'a' is new", "step 'b' was removed")),
        "pipeline has changed since run 'r' was started:\n  - step 'a' is new\n  - step 'b' was removed\n",
    ),
    (RunDefinitionChanged("r", ("entry is 'b'",), "graph"), "Resume it with the graph as it was, or take"),
    (RunDefinitionChanged("r", ("entry is 'b'",), "graph", ("1", None)), "(version 1, now unnamed):"),
    (
        CallChangedError("r", "s", "'classify'", ("intent", "model")),
        "step 's' of run 'r': the declaration of 'classify' has changed (intent, model) since its answer was "
        "stored, and on_changed='fail'; nothing was sent. Resume the run with",
    ),
    (
        CallChangedError("r", "s", "agent call 1", ("output",), "x is missing"),
        "has changed (output), and the stored answer, which on_changed='keep' is to use, does not fit it: "
        "x is missing. Resume the run with on_changed='ask'",
    ),
    (
        RunCorrupt("r", 3, "it is not JSON"),
        "entry 3 of run 'r' cannot be read: it is not JSON. If that cannot be set right, restore the store",
    ),
    (RunCorrupt("r", 0, "its header is damaged"), "the record of run 'r' cannot be read: its header is"),
    (
        RunFromNewerVersion("r", 2, 1),
        "run 'r' is written in format 2, and this version of fastroai reads up to 1; nothing was run. "
        "Update it (pip install -U fastroai-runs)",
    ),
    (
        UnknownFactKind("r", 3, "file_awaited"),
        "run 'r' cannot continue: entry 3 of its log is a 'file_awaited', which no imported",
    ),
    (
        RunFromOlderVersion("r", 1, 2),
        "run 'r' is written in format 1, and this version of fastroai reads format 2 and later ones;",
    ),
    (AnswerRejected("r:1", "it is 3"), "the answer does not fit question 'r:1': it is 3. The"),
    (QuestionClosed("r:1", "it was answered"), "question 'r:1' cannot be answered: it was answered"),
    (
        QuestionTimedOut("r:1", datetime(2026, 3, 1, tzinfo=UTC)),
        "nobody answered question 'r:1' until 2026-03-01 00:00:00 UTC; ctx.ask(..., on_timeout=...) "
        "continues",
    ),
    (OnceInterrupted("s", "mail"), "step 's' began 'mail', and it is unknown whether it happened"),
    (
        ValueNotStorable("the output of step 's'", "a[0]", "set", "return plain JSON"),
        "the output of step 's' cannot be stored: set at a[0]: return plain JSON",
    ),
    (
        UnpricedModelError("gpt-5-mni", "openai", "price", "openai:gpt-5-mini"),
        "'output_per_mtok': ...}}). Did you mean 'openai:gpt-5-mini'?",
    ),
    (UnpricedModelError("m", "", "spend"), "give the price of a unit: spend(units=..., price_usd=...)"),
    (
        UnpricedModelError("m", "", "price", None, "pricing_overrides['*']"),
        "no price is known for model 'm': pricing_overrides['*'] matches, but there is no list price",
    ),
    (UnpricedModelError("m", "p"), "CostCalculator(pricing_overrides={'p:m': {'input_per_mtok': ..."),
    (UnboundedRequestError("m", "p"), "set max_tokens on the agent"),
    (
        UnmeteredRequestError("a batch of openai:m", ("p", "s"), "make it outside of any run"),
        "a batch of openai:m cannot be counted in p / s, so it was not sent; make it outside of any run",
    ),
    (
        PriceUpdateError("http://prices", "404"),
        "newer prices could not be read from http://prices: 404; the present prices stay in use",
    ),
    (
        LangGraphStopped("s", "interrupt", "'Send it?'"),
        "the LangGraph graph of step 's' waits for an answer to 'Send it?'. Pass a function that returns it "
        "as graph_step(graph, answer=...)",
    ),
    (
        MessageRejected("r", "paid", "the run has finished"),
        "message 'paid' was not sent to run 'r': the run has finished",
    ),
    (
        MessageTimedOut("r", "paid", datetime(2026, 3, 1, tzinfo=UTC)),
        "nobody sent message 'paid' to run 'r' until 2026-03-01 00:00:00 UTC; ctx.receive(..., "
        "on_timeout=...)",
    ),
    (CancelledInside("s"), "step 's' awaited a task that was cancelled, although the step itself was not"),
    (GraphStopped("g", "cancelled", "cancel was requested"), "graph 'g' is cancelled: cancel was requested"),
    (
        MemoryConflict("k", "a", "b"),
        "nodes 'a' and 'b', in parallel branches, both wrote 'k'; let them write different keys, or",
    ),
    (VisitsExhausted(("a", "b")), "every node of a cycle has reached its max_visits: 'a', 'b'"),
    (RecordedError("ValueError", "no number"), "no number"),
    (RecordedError("ValueError", ""), "ValueError"),
    (JudgeEscalated("s", "no data", 2, "draft"), "the judge of step 's' escalated at iteration 2: no data"),
    (
        JudgeNotSatisfied("s", "too long", 3, "draft"),
        "the judge of step 's' did not accept any of 3 outputs; its last feedback: too long. Allow more",
    ),
    (JudgeNotSatisfied("s", "too long", 1, "draft"), "did not accept the output; its last feedback"),
    (LangGraphStopped("s", "recursion limit", "25"), "its recursion limit (25); make sure that it ends"),
    (ScopeClosedError(("p", "s")), "a request of p / s was made after that run had ended"),
    (ScopeClosedError(("p", "s"), in_flight=True), "a request of p / s was cancelled, because its run ended"),
    (
        ForkedScopeError("budget", ("p",), 7, 8),
        "process 8 cannot spend the budget of p: it was forked from process 7",
    ),
    (
        ForkedScopeError("run", ("p", "s"), 7, 8),
        "process 8 cannot work on the run of p / s: it was forked from process 7",
    ),
    (RunningLoopError("run_sync", "agent.run"), "use: await agent.run(...)"),
    (NoRunningLoopError("trio"), "on the event loop of trio"),
]


def of_type(example: tuple[FastroAIError, str]) -> str:
    return type(example[0]).__name__


def test_there_is_an_example_of_every_error() -> None:
    packages = (errors, functions, graphs, workflows)
    members = [getattr(package, name) for package in packages for name in package.__all__]
    classes = {one for one in members if inspect.isclass(one) and issubclass(one, FastroAIError)}
    assert {type(error) for error, _ in EXAMPLES} == classes


@pytest.mark.parametrize(("error", "message"), EXAMPLES, ids=map(of_type, EXAMPLES))
def test_errors_say_what_is_wrong_and_what_to_do(error: FastroAIError, message: str) -> None:
    assert message in str(error)


@pytest.mark.parametrize("error", [error for error, _ in EXAMPLES], ids=map(of_type, EXAMPLES))
def test_errors_survive_pickling_with_what_was_spent(error: FastroAIError) -> None:
    attach_usage(error, SPENT, RECORDS)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert (copy.usage, records_of(copy)) == (SPENT, RECORDS)
    facts = {name: value for name, value in vars(error).items() if name not in ("original_error", "errors")}
    assert {name: vars(copy)[name] for name in facts} == facts


def test_an_error_that_stopped_no_pipeline_has_no_outputs() -> None:
    assert (dict(FastroAIError("x").step_outputs), FastroAIError("x").run_id) == ({}, None)


def test_amounts_of_a_budget_are_there_in_dollars() -> None:
    error = CostBudgetExceeded(500_000, 498_000, requested=9_000)
    assert (error.budget_usd, error.actual_usd, error.requested_usd) == (
        Decimal("0.5"),
        Decimal("0.498"),
        Decimal("0.009"),
    )
    assert CostBudgetExceeded(1, 0).requested_usd is None


def test_a_partial_result_survives_pickling() -> None:
    error = CostBudgetExceeded(10, 9)
    error.step_outputs, error.run_id = {"a": 1}, "run-1"
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.step_outputs, copy.run_id) == ({"a": 1}, "run-1")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (ConfigurationError, ValueError),
        (CompileError, ConfigurationError),
        (PostconditionFailed, ContractViolation),
        (StabilityAssertionError, AssertionError),
        (HumanTimeoutError, TimeoutError),
        (ExpressionError, ValueError),
        (UnknownModelError, ValueError),
        (MissingExtraError, ImportError),
        (PipelineValidationError, ValueError),
        (GraphValidationError, ValueError),
        (WorkflowValidationError, ValueError),
        (UnknownPipelineError, KeyError),
        (MissingInputError, KeyError),
        (MissingDependencyError, KeyError),
        (InputTypeError, TypeError),
        (DependencyTypeError, TypeError),
        (TimeLimitExceeded, TimeoutError),
        (RunningLoopError, RuntimeError),
        (NoRunningLoopError, RuntimeError),
    ],
)
def test_errors_are_the_builtin_ones_that_callers_expect(
    error: type[FastroAIError], builtin: type[Exception]
) -> None:
    assert issubclass(error, builtin)


def test_one_filter_is_for_all_warnings() -> None:
    kinds = (LongTimeoutWarning, NearMissWarning, UnpricedModelWarning, UntestedVersionWarning)
    assert all(issubclass(kind, FastroAIWarning) for kind in kinds)
    of_users = {kind for kind in UserWarning.__subclasses__() if kind.__module__.startswith("fastroai.")}
    assert of_users == {FastroAIWarning}


def test_only_what_can_pass_by_itself_is_worth_trying_again() -> None:
    assert [type(error).__name__ for error, _ in EXAMPLES if error.retryable] == [
        "TimeLimitExceeded",
        "AnswerCutError",
        "CircuitOpenError",
        "CircuitOpenError",
        "SpendStoreUnavailable",
        "StoreUnavailable",
        "RunInProgress",
        "PriceUpdateError",
        "CancelledInside",
    ]


def test_a_budget_stop_has_the_messages_of_the_outermost_agent_run_that_it_stopped() -> None:
    assert CUT.messages is MESSAGES
    assert SHARED.messages == []


def test_the_longer_name_of_the_cost_budget_error_is_the_same_class() -> None:
    assert CostBudgetExceededError is CostBudgetExceeded


def test_violations_are_texts_with_the_place_of_each() -> None:
    detail: ViolationDetail = {"type": "missing", "loc": ("a", 0), "msg": "Field required"}
    assert ContractViolation("s", "input", (detail,), {}).violations == ("a.0: Field required",)
    assert PostconditionFailed("f", ("one", "two"), None).violations == ("one", "two")


def test_an_error_that_never_left_a_run_has_spent_nothing() -> None:
    assert FastroAIError("x").usage == Usage()
    assert usage_of(ValueError("x")) is None
    assert records_of(ValueError("x")) == ()


def test_usage_of_works_for_foreign_errors_and_is_a_snapshot() -> None:
    error, usage = ValueError("x"), SPENT.copy()
    attach_usage(error, usage)
    usage.request_count = 99
    assert usage_of(error) == SPENT


def test_the_outermost_scope_has_the_last_word() -> None:
    error = ValueError("x")
    attach_usage(error, Usage(request_count=1))
    attach_usage(error, SPENT)
    assert usage_of(error) == SPENT


def test_usage_is_found_through_causes_and_contexts() -> None:
    inner, middle, outer = ValueError("inner"), KeyError("middle"), FastroAIError("outer")
    attach_usage(inner, SPENT)
    middle.__context__ = inner  # raised while handling
    outer.__cause__ = middle  # raised from
    assert list(error_chain(outer)) == [outer, middle, inner]
    assert outer.usage == SPENT


def test_a_suppressed_context_is_not_searched() -> None:
    inner, outer = ValueError("inner"), FastroAIError("outer")
    attach_usage(inner, SPENT)
    try:
        try:
            raise inner
        except ValueError:
            raise outer from None
    except FastroAIError:
        pass
    assert usage_of(outer) is None


def test_usage_is_found_in_nested_groups_nearest_first() -> None:
    near, far = ValueError("near"), ValueError("far")
    attach_usage(near, SPENT)
    attach_usage(far, Usage(request_count=1))
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [far]), near])
    assert usage_of(group) == SPENT
    assert [str(link) for link in error_chain(group)][-1] == "far"


def test_a_chain_that_goes_in_a_circle_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert list(error_chain(one)) == [one, other]


def test_a_hint_names_the_nearest_name_or_nothing() -> None:
    assert nearest_hint("clasify", ["read", "classify"]) == " Did you mean 'classify'?"
    assert nearest_hint("zzz", ["read", "classify"]) == ""


def test_an_error_is_called_by_the_name_that_users_import() -> None:
    names = {type(error): f"{type(error).__module__}.{type(error).__qualname__}" for error, _ in EXAMPLES}
    assert all(pickle.loads(pickle.dumps(kind)) is kind for kind in names)
    assert names[errors.BudgetExceeded] == "fastroai.errors.BudgetExceeded"
    assert names[graphs.GraphStopped] == "fastroai.graphs.GraphStopped"

    class OfUsers(FastroAIError):
        pass

    assert OfUsers.__module__ == __name__
