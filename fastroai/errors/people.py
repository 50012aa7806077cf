"""Questions to people, and messages to runs."""

from __future__ import annotations

from datetime import datetime

from fastroai.errors.base import FastroAIError


class AnswerRejected(FastroAIError, ValueError):
    """An answer is not of the type that the question asks for, or not one of its options.

    The question stays open.

    What to do: Answer again with a value of the type that the message names.
    """

    def __init__(self, question_id: str, reason: str) -> None:
        super().__init__(question_id, reason)
        self.question_id, self.reason = question_id, reason

    def __str__(self) -> str:
        return (
            f"the answer does not fit question {self.question_id!r}: {self.reason}. "
            "The question stays open; answer it again"
        )


class QuestionClosed(FastroAIError):
    """A question cannot be answered: it has an answer, its time is over, or its run does not wait for it.

    What to do: Read `reason`. `Inbox(store).get(question_id)` says who answered, or why the question is
    closed; `Inbox(store).list()` has the open ones.
    """

    def __init__(self, question_id: str, reason: str) -> None:
        super().__init__(question_id, reason)
        self.question_id, self.reason = question_id, reason

    def __str__(self) -> str:
        return f"question {self.question_id!r} cannot be answered: {self.reason}"


class QuestionTimedOut(FastroAIError, TimeoutError):
    """Nobody answered a question in time, and `ctx.ask` was given no `on_timeout=`.

    What to do: Ask with a later deadline, or give `on_timeout=` a value for this case.
    """

    def __init__(self, question_id: str, deadline: datetime) -> None:
        super().__init__(question_id, deadline)
        self.question_id, self.deadline = question_id, deadline

    def __str__(self) -> str:
        return (
            f"nobody answered question {self.question_id!r} until {self.deadline:%Y-%m-%d %H:%M:%S} UTC; "
            "ctx.ask(..., on_timeout=...) continues without an answer"
        )


class MessageRejected(FastroAIError, ValueError):
    """A message that the run cannot receive. It was not sent.

    What to do: Look at `reason`. The run must not have finished, and the value must be JSON of the type for
    which the run waits under this name.
    """

    def __init__(self, run_id: str, name: str, reason: str) -> None:
        super().__init__(run_id, name, reason)
        self.run_id, self.name, self.reason = run_id, name, reason

    def __str__(self) -> str:
        return f"message {self.name!r} was not sent to run {self.run_id!r}: {self.reason}"


class MessageTimedOut(FastroAIError, TimeoutError):
    """Nobody sent a message in time, and `ctx.receive` was given no `on_timeout=`.

    What to do: Send the message earlier, wait longer, or give `on_timeout=` a value for this case.
    """

    def __init__(self, run_id: str, name: str, deadline: datetime) -> None:
        super().__init__(run_id, name, deadline)
        self.run_id, self.name, self.deadline = run_id, name, deadline

    def __str__(self) -> str:
        return (
            f"nobody sent message {self.name!r} to run {self.run_id!r} until "
            f"{self.deadline:%Y-%m-%d %H:%M:%S} UTC; ctx.receive(..., on_timeout=...) continues without it"
        )
