import dataclasses
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from support.steps import failure_of, run_alone

from fastroai.errors import ConfigurationError
from fastroai.pipelines import BaseStep, FunctionStep, StepConfig, StepContext, step
from fastroai.runtime import DEFAULT_RETRY
from fastroai.usage import Budget


async def test_an_async_function_is_a_step_that_runs_on_the_loop() -> None:
    @step
    async def where(ctx: StepContext) -> str:
        return threading.current_thread().name

    assert isinstance(where, BaseStep)
    assert (await run_alone(where)).output == threading.current_thread().name


async def test_a_plain_function_is_a_step_that_runs_in_a_worker_thread() -> None:
    @step
    def where(ctx: StepContext) -> str:
        return threading.current_thread().name

    assert (await run_alone(where)).output != threading.current_thread().name


async def test_a_class_is_a_step_and_may_keep_state_and_a_config() -> None:
    class Times(BaseStep[None, int]):
        config = StepConfig(retries=2)

        def __init__(self, factor: int) -> None:
            self.factor = factor

        async def execute(self, context: StepContext[None]) -> int:
            number: int = context.get_input("number")
            return number * self.factor + context.config.retries

    assert (await run_alone(Times(10), inputs={"number": 4})).output == 42


def test_a_class_without_execute_is_not_a_step() -> None:
    class Nothing(BaseStep): ...

    with pytest.raises(TypeError, match="execute"):
        Nothing()  # type: ignore[abstract]


async def test_a_class_whose_execute_is_not_async_says_so() -> None:
    class Plain(BaseStep):
        def execute(self, context: StepContext) -> Any:
            return 1

    error = await failure_of(Plain())
    assert isinstance(error, ConfigurationError)
    assert str(error) == "execute='Plain': expected `async def execute(self, context)`"


OPTIONS: dict[str, Any] = {
    "timeout": 1,
    "total_timeout": 2,
    "retries": 3,
    "retry_delay": 4,
    "cost_budget": 5,
    "trace": False,
    "on_error": "continue",
}
OTHERS: dict[str, Any] = {
    "retry": DEFAULT_RETRY,
    "classifiers": [lambda error, context: None],
    "budget": Budget(usd=1),
    **dict.fromkeys(("on_step_start", "on_step_success", "on_step_failure", "on_retry"), print),
}
"""Those that are not given beside some of the first ones."""


def test_every_option_of_the_decorator_is_the_steps_config() -> None:
    async def work(ctx: StepContext) -> None: ...

    for options in (OPTIONS, OTHERS):
        assert step(**options)(work).config == StepConfig(**options)
    assert {field.name for field in dataclasses.fields(StepConfig)} == OPTIONS.keys() | OTHERS.keys()


def test_the_bare_decorator_gives_nothing() -> None:
    @step
    async def bare(ctx: StepContext) -> None: ...

    @step()
    async def called(ctx: StepContext) -> None: ...

    assert bare.config == called.config == StepConfig()


def test_the_function_is_still_there_to_call_and_to_read() -> None:
    @step
    def add(ctx: Any) -> int:
        """Adds."""
        return int(ctx) + 1

    assert add(1) == 2  # type: ignore[arg-type]
    assert (getattr(add, "__name__", None), add.__doc__) == ("add", "Adds.")
    assert repr(add) == "<step 'add'>"
    assert isinstance(add, FunctionStep)


def test_a_callable_without_a_name_can_be_shown() -> None:
    class Callable_:
        def __call__(self, ctx: StepContext) -> int:
            return 1

        def __repr__(self) -> str:
            return "<callable>"

    assert repr(step(Callable_())) == "<step <callable>>"


@pytest.mark.parametrize("wrong", [5, "name", None.__class__, BaseStep])
def test_only_functions_can_be_decorated(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^step=.*expected a function that takes the StepContext"):
        step(wrong)
    with pytest.raises(ConfigurationError):
        step(retries=1)(wrong)


def nothing() -> int:
    return 1


def with_more(ctx: StepContext, text: str) -> int:
    return 1


def with_option(ctx: StepContext, *, text: str) -> int:
    return 1


@pytest.mark.parametrize("wrong", [nothing, with_more, with_option])
def test_a_function_that_does_not_take_the_context_alone_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^step=.*takes the StepContext, and nothing else"):
        step(wrong)
    with pytest.raises(ConfigurationError):
        step(retries=1)(wrong)


def test_what_a_wrapper_passes_on_by_itself_is_not_asked_for() -> None:
    @functools.wraps(with_more)
    def wrapper(ctx: StepContext) -> int:
        return with_more(ctx, "text")

    def any_number(*contexts: StepContext, text: str = "") -> int:
        return len(contexts)

    assert [step(wrapper).function, step(any_number).function] == [wrapper, any_number]


async def async_generator(ctx: StepContext) -> AsyncIterator[str]:
    yield "text"


def generator(ctx: StepContext) -> Iterator[str]:
    yield "text"


@pytest.mark.parametrize("function", [async_generator, generator])
def test_a_function_that_yields_has_no_output(function: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"without `yield`; ctx\.run_stream streams in it"):
        step(function)


async def test_a_coroutine_that_somebody_forgot_to_await_is_no_output() -> None:
    async def later() -> int:
        return 1

    @step
    async def forgets(ctx: StepContext) -> Any:
        return later()

    error = await failure_of(forgets)
    assert isinstance(error, ConfigurationError)
    assert "await the coroutine: `return await ...`" in str(error)


@pytest.mark.parametrize("options", [{"timeout": -1}, {"retries": -1}, {"cost_budget": 0}])
def test_an_option_that_cannot_be_meant_is_refused_where_it_is_written(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        step(**options)


def test_a_misspelt_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="retrys"):
        step(retrys=1)  # type: ignore[call-overload]


async def answer(ctx: StepContext, value: int = 0) -> int:
    return value


class AsyncCallable:
    async def __call__(self, ctx: StepContext) -> int:
        return 7


@functools.wraps(answer)
def wrapper(ctx: StepContext) -> Any:
    return answer(ctx, 7)


@pytest.mark.parametrize(
    "function",
    [functools.partial(answer, value=7), lambda ctx: answer(ctx, 7), wrapper, AsyncCallable()],
    ids=["partial", "lambda", "wrapper", "object"],
)
async def test_whatever_returns_a_coroutine_is_awaited(function: Callable[..., Any]) -> None:
    assert (await run_alone(step(function))).output == 7
