"""`@infer`: a function that a model implements."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar, Generic, Literal, ParamSpec, Protocol, get_args, overload

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models import Model
from typing_extensions import TypeVar, Unpack

from fastroai.agent import FastroAgent
from fastroai.agent.declared import model_name, settings_as_json
from fastroai.callers import warn_caller
from fastroai.calls.call import AgentCall
from fastroai.contracts.annotations import Annotation, outer_class
from fastroai.errors import ConfigurationError, FastroAIWarning, ScopeClosedError
from fastroai.functions.attempts import Asker
from fastroai.functions.cache import AnswerCache, global_cache, process_memory, session_cache
from fastroai.functions.configuring import configuration
from fastroai.functions.declaring.declaration import (
    Declaration,
    InferOptions,
)
from fastroai.functions.declaring.signature import body_problems
from fastroai.functions.errors import CompileError
from fastroai.functions.function import FindArguments, Function, without_options
from fastroai.functions.inference import Inference
from fastroai.functions.kept_calls import CallDraft
from fastroai.functions.prompt import CompiledPrompt, compile_prompt, text_problems, texts_of
from fastroai.functions.refinement import Refinement
from fastroai.functions.several.probabilistic import Probabilistic, with_usage
from fastroai.functions.typed_answers import AnswerType
from fastroai.keyword_options import takes_options
from fastroai.steps import StepContext
from fastroai.steps.context import scope_of
from fastroai.steps.estimating import OutputNotKnown
from fastroai.store.record.declarations import digest
from fastroai.usage import Quote

P = ParamSpec("P")
OutputT = TypeVar("OutputT", default=Any)
R = TypeVar("R")


class InferFunction(Function[P, OutputT], Generic[P, OutputT]):
    """A function that a model implements; made by `infer`.

    Call it like an async function: `await classify("text")`. It is also a step for `steps=` and `nodes=`,
    which takes its arguments from the inputs and outputs that have the names of its parameters. `map` calls
    it for each row of a table, and `estimate` says what a call may cost.
    """

    kind: ClassVar[Literal["infer", "compute"]] = "infer"

    def __init__(self, function: Callable[..., object], declaration: Declaration) -> None:
        """Check a declaration.

        Raises:
            CompileError: the declaration cannot work. Every problem is named.
        """
        self._declaration = declaration
        super().__init__(
            function, given=declaration.given, ensure=declaration.ensure, budget=declaration.budget
        )
        if not declaration.stable:
            self._returns = Probabilistic[self._returns]  # type: ignore[name-defined]
        self._answers = AnswerType[Any](self.signature.returns)
        self._quorum = declaration.voting()
        self._askers: dict[int | str | None, Asker[Any]] = {}
        brought = declaration.agent
        self._brought = FastroAgent(agent=brought) if isinstance(brought, AbstractAgent) else brought
        self._declared: dict[int | str | None, Mapping[str, str]] = {}
        self._warned = False

    def _problems(self) -> Iterator[str]:
        declared = self._declaration
        yield from body_problems(self.function)
        yield from text_problems(self.signature, intent=declared.intent, context=declared.context)
        yield from declared.problems(self._returns)
        yield from _sample_problems(self._returns)

    def compile(self, *args: P.args, **kwargs: P.kwargs) -> CompiledPrompt:
        """Return the prompt of a call with these arguments, with a hash of its text, without making the call.

        Nothing is sent, and the conditions in `given` are not checked. This method is not async.

        Raises:
            TypeError: an argument is missing, unknown, or given twice.
            ContractViolation: an argument is not of the type of its parameter.
        """
        return self._compiled(self.signature.bind(args, kwargs))

    def refined(self, refinement: Refinement) -> InferFunction[P, OutputT]:
        """Return a new function that asks again, with feedback, until an answer is good enough.

        `@refine` calls this. `refinement` has its options, and this function stays as it is.

        Raises:
            CompileError: the function returns samples, so there is not one answer to refine, or it is refined
                already.
        """
        problems: list[str] = []
        if not self._declaration.stable:
            problems.append("refine needs one answer to refine, and stable=False gives samples")
        if self._declaration.refinement is not None:
            problems.append("it is refined twice; give one @refine all conditions: until=[...]")
        if problems:
            raise CompileError(f"function {self.name!r}", tuple(problems))
        return InferFunction(self.function, replace(self._declaration, refinement=refinement))

    def _compiled(self, arguments: Mapping[str, Any], **more: Any) -> CompiledPrompt:
        declared = self._declaration
        return compile_prompt(
            self.signature, arguments, intent=declared.intent, context=declared.context, **more
        )

    async def _run(
        self, arguments: Mapping[str, Any], context: StepContext[Any], draft: CallDraft
    ) -> OutputT:
        prompt = self._compiled(arguments)
        draft.prompt_hash, draft.contract_hash, draft.attempts = prompt.hash, self._contract_hash, 0
        inference: Inference[Any] = Inference(
            asker=self._asker(),
            context=context,
            draft=draft,
            samples=self._samples(),
            quorum=self._quorum,
            cache=self._cache(context),
        )
        refinement = self._declaration.refinement
        output: Any
        if refinement is not None:
            compile_next = functools.partial(self._compiled, arguments)
            output = await refinement.refined(inference, prompt, compile_next)
        elif self._declaration.stable:
            output = (await inference.answer(prompt, "")).output
        else:
            samples = Probabilistic(tuple([one.output for one in await inference.answers(prompt, "")]))
            output = with_usage(samples, scope_of(context).spent())
        draft.is_cache_hit = draft.attempts == 0
        given: OutputT = output
        return given

    async def quoted(self, context: StepContext[Any], find: FindArguments) -> Quote:
        """Estimate the cost of a call in a step, without a request: the quote that `estimate` returns.

        The async function `find` is called with the context and returns arguments; missing ones come from
        inputs and outputs. If an argument needs the output of another step, or `find` calls a model, the
        quote is for any prompt, and says why. All samples and members count, and in the highest amount all
        attempts and iterations, too. A budget of the function limits the amounts.

        Raises:
            MissingInputError: no input or output has the name of a parameter without a default.
            ConfigurationError: no model is known.
        """
        prompt: list[str] | None = None
        unknown: str | None = None
        try:
            prompt = self._compiled(self._found(context, await find(context))).content
        except OutputNotKnown as missing:
            unknown = f"its arguments need the output of step {missing.step_id!r}"
        except ScopeClosedError:
            unknown = "code that finds its arguments calls a model"
        return await self._quote(prompt, unknown, context.deps)

    async def _quoted_with(self, arguments: Mapping[str, Any]) -> Quote:
        return await self._quote(self._compiled(arguments).content, None, None)

    async def _quote(self, prompt: list[str] | None, unknown: str | None, deps: object) -> Quote:
        """Estimate a call with a prompt; for any prompt, if `unknown` says why it is not known."""
        declared, refinement = self._declaration, self._declaration.refinement
        one = (await self._asker().quote(prompt, deps, unknown)).retried(declared.retries)
        members = 1 if self._quorum is None else self._quorum.members
        quote = one * (members * self._samples())
        if refinement is not None:
            quote = quote.retried(refinement.max_iterations - 1)
        if declared.cache != "none":
            quote = replace(
                quote, lower_usd=Decimal(0), lower_reasons=("an answer in the cache costs nothing",)
            )
        return self._within_budget(quote)

    def _samples(self) -> int:
        if self._declaration.stable:
            return 1
        settings = configuration()
        return settings.sample_n if settings.test_mode else 1

    def _asker(self) -> Asker[Any]:
        """Return the asker for the model of this function. It is made once for each model."""
        declared, model = self._declaration, self._model()
        if model is None and (self._brought is None or self._brought.agent.model is None):
            expected = "a model: infer(model=...) or configure(default_model=...)"
            raise ConfigurationError("model", None, expected)
        known_as = model if model is None or isinstance(model, str) else id(model)  # its asker keeps it alive
        if known_as not in self._askers:
            self._askers[known_as] = Asker(
                function=self.name,
                agent=self._agent(model),
                is_own_agent=declared.agent is None,
                answers=self._answers,
                ensure=self._ensure,
                retries=declared.retries,
                model=None if declared.agent is None else model,
                declares=self.declares,
            )
        return self._askers[known_as]

    def check_batches(self) -> None:
        """Check that the model of this function has a batch API, as `map(batch=True)` needs it.

        Nothing is sent, and `None` is returned.

        Raises:
            ConfigurationError: the model has no batch API, or no model is known.
        """
        asker = self._asker()
        asker.agent.check_batches(asker.model)

    def _model(self) -> Model | str | None:
        """Return the model to ask, if it is known here; `None` also if the agent that was brought has one."""
        if self._declaration.model is None and (self._brought is None or self._brought.agent.model is None):
            return configuration().default_model
        return self._declaration.model

    def declares(self) -> Mapping[str, str]:
        """Return hashes of what is declared for calls, by name.

        The names are `intent`, `context`, `output`, `settings` and, if a model is known, `model`; with
        `agent=`, also `instructions`. They are on record with each call, so that a resumed run notices a
        changed declaration: see `on_changed`.
        """
        model, declared = self._model(), self._declaration
        texts = {
            "intent": digest(declared.intent.strip()),
            "context": digest(*texts_of(declared.context)),
            "output": self._contract_hash,
        }
        if self._brought is not None:  # whose instructions and model can be overridden for a while
            return {**self._brought.declared_for(AgentCall(prompt=None, options={"model": model})), **texts}
        known_as = model if model is None or isinstance(model, str) else id(model)
        if (known := self._declared.get(known_as)) is None:
            heat = None if declared.temperature is None else {"temperature": declared.temperature}
            known = {**texts, "settings": digest(settings_as_json(model, heat))}
            if model is not None:
                known["model"] = digest(model_name(model))
            self._declared[known_as] = known
        return known

    def _agent(self, model: Model | str | None) -> FastroAgent[Any, Any]:
        declared = self._declaration
        if self._brought is not None:
            return self._brought
        return FastroAgent(
            model,
            output_type=self._answers.output_type,
            name=self.name,
            temperature=declared.temperature,
            tools=declared.tools,
            retries={"output": 0},
            defer_model_check=isinstance(model, str),
        )

    def _cache(self, context: StepContext[Any]) -> AnswerCache | None:
        """Return the cache that this call uses, if there is one."""
        match self._declaration.cache:
            case "none":
                return None
            case "session":
                return session_cache(scope_of(context))
            case "global":
                settings = configuration()
                store: Any = settings.store if settings.cache_store is None else settings.cache_store
                if store is None:
                    self._warn_of_memory()
                    store = process_memory()
                return global_cache(store, settings.cache_size, settings.cache_age)

    def _warn_of_memory(self) -> None:
        """Warn once that the answers end with the process."""
        if not self._warned:
            self._warned = True
            advice = "configure(store='runs.db') keeps them"
            warn_caller(
                f"the answers of {self.name!r}, cache='global', end with this process: {advice}",
                FastroAIWarning,
            )


class _Infer(Protocol):
    """The decorator that `infer(...)` returns. It takes `def` and `async def`; the result is awaited."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> InferFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> InferFunction[P, R]: ...


class _InferSamples(Protocol):
    """The decorator that `infer(..., stable=False)` returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> InferFunction[P, Probabilistic[R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> InferFunction[P, Probabilistic[R]]: ...


@overload
def infer(*, intent: str, stable: Literal[True] = ..., **options: Unpack[InferOptions]) -> _Infer: ...
@overload
def infer(*, intent: str, stable: Literal[False], **options: Unpack[InferOptions]) -> _InferSamples: ...
@takes_options(
    InferOptions,
    instead={"prompt": "intent=", "max_retries": "retries=", "timeout": "budget=Budget(ms=…)"},
)
def infer(
    _bare: object = None,
    /,
    *,
    intent: str = "",
    stable: bool = True,
    **options: Unpack[InferOptions],
) -> Any:
    """Let a model implement a function that has a signature and no body. The function is awaited.

        @infer(intent="Classify the emotional tone of customer feedback", ensure=lambda r: r.confidence > 0.7)
        async def classify(text: str) -> Sentiment:
            raise NotImplementedError

    The body is `raise NotImplementedError`, a docstring or `...`. Arguments and outputs have the declared
    types. A call checks `given`, asks the model within the budget, reads the answer and checks `ensure`. If
    the answer is not good enough, the model is asked again, with an exact list of the mistakes. After the
    last attempt, the call raises `ParseFailure` or `PostconditionFailed`. It raises `PreconditionFailed` if
    `given` does not hold, and `ConsensusFailure` if too few members of a quorum agree.

    Args:
        intent: The purpose of the function. Inputs are added automatically.
        context: Further information for the model: a text, or a list of texts, a paragraph each.
        ensure: Conditions on the output: functions of the output, with a description if you like.
        given: Conditions on the arguments: functions whose parameters have the names of the arguments.
        model: `provider:model`, or a model of PydanticAI; by default, the one of `configure`. Without any,
            a call raises `ConfigurationError`.
        temperature: A setting of the model; by default, none is sent.
        budget: Budget of a whole call, with its attempts and members. Siblings share the budgets around it.
        retries: Extra attempts if an answer is not of the type, or `ensure` does not hold; by default 3.
            Transport failures are retried separately.
        cache: Where answers are kept: `"none"`, the default; `"session"`, inside of flows, as long as the
            outermost flow runs; or `"global"`, in the store of `configure`, or in the memory of the process
            if it names none. A kept answer costs nothing, and must pass `ensure`.
        stable: With False, the result is a `Probabilistic`: one sample, or `sample_n` in test mode.
        quorum: Number of members that answer side by side, under one budget. It needs `agree_on` or
            `threshold`. The result is an output of the members that agree.
        agree_on: The field of the output on which members must agree; without it, the whole output.
        threshold: Number of members that must agree; by default, more than half.
        agent: An agent to ask, with its instructions and tools, instead of one that is made for the function.
            It excludes `model`, `temperature` and `tools`.
        tools: Tools for the model, as for an agent.

    Raises:
        CompileError: the decorated function cannot work, an option is invalid, or `infer` is used without
            options. Every problem is named.
    """
    if _bare is not None:
        raise without_options("infer", _bare, 'intent="what the function does"')
    return functools.partial(_declared, Declaration(intent=intent, stable=stable, **options))


def _sample_problems(returns: Annotation) -> list[str]:
    """Return a problem if the declared result is the samples, and not one of them."""
    if outer_class(returns) is not Probabilistic:
        return [problem for inner in get_args(returns) for problem in _sample_problems(inner)]
    of = [getattr(one, "__name__", str(one)) for one in get_args(returns)]
    one = of[0] if of else "T"
    return [
        f"it returns Probabilistic[{one}], which a model would have to write. Write `-> {one}`, the type of "
        f"one answer, and stable=False: then a call gives Probabilistic[{one}]"
    ]


def _declared(declaration: Declaration, function: Callable[P, object], /) -> InferFunction[P, Any]:
    return InferFunction(function, declaration)
