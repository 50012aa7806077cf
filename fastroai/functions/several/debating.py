"""`debate`: agents answer a topic in rounds, and know the last answers of the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias, TypeVar, overload

from fastroai.errors import ConfigurationError
from fastroai.functions.declaring.static_checks import agreement_problems
from fastroai.functions.function import Function
from fastroai.functions.several.quorum import Fields, agreed_value, fields_of
from fastroai.functions.several.side_by_side import parallel
from fastroai.runtime.options import check_count

ArgumentT = TypeVar("ArgumentT")
OutputT = TypeVar("OutputT")

Agent: TypeAlias = Callable[[Any, Any], Coroutine[Any, Any, ArgumentT]]
"""A participant in a debate: a typed function, or an async function.

It takes the topic, and the last arguments of the others as a tuple, which is empty in the first round.
"""

Rounds: TypeAlias = tuple[tuple[ArgumentT, ...], ...]
"""The arguments of all rounds, each round in the order of the agents."""

Synthesize: TypeAlias = Callable[[Any, Rounds[ArgumentT], bool], Coroutine[Any, Any, OutputT] | OutputT]
"""Makes the result from the topic, the arguments of all rounds, and whether the debate has converged."""

DEFAULT_ROUNDS: Final = 2


@overload
async def debate(
    agents: Sequence[Agent[ArgumentT]],
    topic: object,
    rounds: int = DEFAULT_ROUNDS,
    synthesize: None = None,
    *,
    agree_on: Fields = (),
) -> Rounds[ArgumentT]: ...
@overload
async def debate(
    agents: Sequence[Agent[ArgumentT]],
    topic: object,
    rounds: int = DEFAULT_ROUNDS,
    synthesize: Callable[[Any, Any, bool], Coroutine[Any, Any, OutputT]] = ...,
    *,
    agree_on: Fields = (),
) -> OutputT: ...
@overload
async def debate(
    agents: Sequence[Agent[ArgumentT]],
    topic: object,
    rounds: int = DEFAULT_ROUNDS,
    synthesize: Callable[[Any, Any, bool], OutputT] = ...,
    *,
    agree_on: Fields = (),
) -> OutputT: ...
async def debate(
    agents: Sequence[Agent[ArgumentT]],
    topic: object,
    rounds: int = DEFAULT_ROUNDS,
    synthesize: Synthesize[ArgumentT, OutputT] | None = None,
    *,
    agree_on: Fields = (),
) -> OutputT | Rounds[ArgumentT]:
    """Let agents answer a topic in rounds, side by side, each knowing the last arguments of the others.

    The agents are functions of a topic and of the others' last arguments, such as typed functions. They are
    not `Agent` objects of PydanticAI. In the first round, the arguments are an empty tuple.

        @infer(intent="Argue for or against the merger")
        async def advise(topic: str, arguments: tuple[Position, ...] = ()) -> Position: ...

        verdict = await debate([advise, object_to], "Shall we merge?", rounds=3, synthesize=decide)

    The debate ends after `rounds` rounds, 2 by default, or once it has converged: the last two arguments of
    every agent are equal, in the fields that `agree_on` names, or as a whole. So it cannot converge after one
    round.

    Without `synthesize`, the result is a tuple of rounds, each of which is a tuple of arguments in the order
    of the agents. With `synthesize(topic, arguments, converged)`, which gets these rounds and may be async,
    the result is what it returns. If an agent fails, the others are cancelled, and its error is raised.

    Raises:
        ConfigurationError: there are no agents, one of them is not a function that takes two arguments,
            `rounds` is less than 1, `synthesize` is not a function, or an argument lacks a field that
            `agree_on` names.
    """
    if not isinstance(agents, Sequence) or not agents:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError("agents", agents, "a list of at least one function")
    check_count("rounds", rounds, least=1, required=True)
    if synthesize is not None and not callable(synthesize):
        raise ConfigurationError("synthesize", synthesize, "a function of topic, arguments and converged")
    for agent in agents:
        _check_agent(agent, fields_of(agree_on))
    arguments: list[tuple[ArgumentT, ...]] = []
    positions: list[object] = []
    converged = False
    while len(arguments) < rounds and not converged:
        last = arguments[-1] if arguments else ()
        arguments.append(
            await parallel(
                *(agent(topic, (*last[:number], *last[number + 1 :])) for number, agent in enumerate(agents))
            )
        )
        before, positions = positions, [agreed_value(one, fields_of(agree_on)) for one in arguments[-1]]
        converged = before == positions
    if synthesize is None:
        return tuple(arguments)
    made = synthesize(topic, tuple(arguments), converged)
    return await made if isinstance(made, Coroutine) else made


def _check_agent(agent: object, agree_on: Sequence[str]) -> None:
    """Refuse an agent that is not a function, or whose outputs lack a field on which they should agree."""
    if not (callable(agent) and _takes_two(agent)):
        expected = "functions of a topic, and of the last arguments of the others: argue(topic, arguments)"
        raise ConfigurationError("agents", agent, expected)
    if isinstance(agent, Function):
        for name in agree_on:
            for problem in agreement_problems(name, agent.inferred_output()):
                expected = f"a field of what {agent.name!r} returns: {problem}"
                raise ConfigurationError("agree_on", name, expected)


def _takes_two(agent: Callable[..., object]) -> bool:
    try:
        inspect.signature(agent).bind(None, ())
    except TypeError:
        return False
    except ValueError:  # some callables of extensions do not tell their parameters
        return True
    return True
