"""One call of a function with `@infer`: the cache, the samples and the quorum around its attempts."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from fastroai.functions.attempts import Asker
from fastroai.functions.cache import AnswerCache, Answers, key_of
from fastroai.functions.kept_calls import CallDraft
from fastroai.functions.prompt import CompiledPrompt
from fastroai.functions.several.quorum import Ballot, Quorum, agreed
from fastroai.functions.typed_answers import Answer
from fastroai.steps import StepContext
from fastroai.steps.context import scope_of
from fastroai.steps.fanout import run_bounded
from fastroai.tracing import attributes

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Inference(Generic[T]):
    """The inputs of one call to its model. A refinement asks for `answer` several times.

    Nobody changes it; a frozen one takes longer to make.
    """

    asker: Asker[T]
    context: StepContext[Any]
    draft: CallDraft
    samples: int
    quorum: Quorum | None
    cache: AnswerCache | None

    def answer(self, prompt: CompiledPrompt, name: str) -> Coroutine[Any, Any, Answer[T]]:
        """Return the answer of a call that takes one sample: a kept answer, or else one of the model.

        `name` tells this prompt from others of the call.
        """
        return self._one(prompt, name) if self.cache is None else self._first(self.cache, prompt, name)

    def answers(self, prompt: CompiledPrompt, name: str) -> Coroutine[Any, Any, tuple[Answer[T], ...]]:
        """Return an answer for each sample, as `answer` does."""
        return self._drawn(prompt, name) if self.cache is None else self._kept(self.cache, prompt, name)

    async def _first(self, cache: AnswerCache, prompt: CompiledPrompt, name: str) -> Answer[T]:
        [answer] = await self._kept(cache, prompt, name)
        return answer

    async def _kept(self, cache: AnswerCache, prompt: CompiledPrompt, name: str) -> tuple[Answer[T], ...]:
        shape = await self.asker.shape(self.context, prompt)
        if shape is None:
            return await self._drawn(prompt, name)
        key = key_of(shape, prompt.content, self.samples, self.quorum, *self._set_by_budgets())
        ask = partial(self._asked, prompt, name)
        answers, _ = await cache.answer(key, scope_of(self.context), read=self._read, ask=ask)
        return answers

    def _set_by_budgets(self) -> tuple[list[str], int | None]:
        """Return the settings of budgets that change requests: fallback models, the lowest `max_tokens`."""
        bounds = scope_of(self.context).bounds
        if bounds.account is None:
            return [], None
        budgets = [account.budget for account in bounds.accounts]
        fallbacks = [repr(budget.fallback) for budget in budgets if budget.fallback is not None]
        limits = [one for budget in budgets if (one := budget.max_tokens_per_request) is not None]
        return fallbacks, min(limits, default=None)

    def _read(self, texts: Answers) -> tuple[Answer[T], ...] | None:
        read: list[Answer[T]] = []
        for text in texts:
            if (answer := self.asker.read(text)) is None:
                return None
            read.append(answer)
        return tuple(read) if len(read) == self.samples else None

    async def _asked(self, prompt: CompiledPrompt, name: str) -> tuple[Answers, tuple[Answer[T], ...]]:
        answers = await self._drawn(prompt, name)
        return tuple(answer.text for answer in answers), answers

    async def _drawn(self, prompt: CompiledPrompt, name: str) -> tuple[Answer[T], ...]:
        if self.samples == 1:
            return (await self._one(prompt, name),)

        def draw(index: int, item: object) -> Coroutine[Any, Any, Answer[T]]:
            return self._one(prompt, f"{name}sample {index + 1}, ")

        answers = await run_bounded(draw, range(self.samples), self.samples)
        self.draft.members += [self._told(number, answer) for number, answer in enumerate(answers, 1)]
        return tuple(answers)

    def _one(self, prompt: CompiledPrompt, name: str) -> Coroutine[Any, Any, Answer[T]]:
        if self.quorum is None:
            return self.asker.ask(self.context, self.draft, prompt, name)
        return self._agreed(self.quorum, prompt, name)

    async def _agreed(self, quorum: Quorum, prompt: CompiledPrompt, name: str) -> Answer[T]:
        ballot: Ballot[Answer[T]] = Ballot(quorum, lambda answer: answer.output)

        def ask(member: int) -> Coroutine[Any, Any, Answer[T]]:
            return self.asker.ask(self.context, self.draft, prompt, f"{name}member {member}, ")

        try:
            return await agreed(ballot, ask, function=self.asker.function)
        finally:
            told = {number: self._told(number, answer) for number, answer in ballot.votes.items()}
            told |= {number: _failed(number, error) for number, error in ballot.errors.items()}
            self.draft.members += [told[number] for number in sorted(told)]

    def _told(self, number: int, answer: Answer[T]) -> dict[str, Any]:
        return {"number": number, "output": self.asker.answers.returns.elided(answer.output)}


def _failed(number: int, error: BaseException) -> dict[str, Any]:
    return {"number": number, "error_type": attributes.error_type(error), "error": str(error)}
