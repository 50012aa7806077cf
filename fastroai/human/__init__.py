"""Questions of runs to people, and their answers. `ctx.ask` asks; the inbox lists and answers."""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.human.inbox import Inbox as Inbox
    from fastroai.human.sinks import to_console as to_console
    from fastroai.store.open_questions import Answer as Answer
    from fastroai.store.open_questions import Question as Question

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".inbox": ("Inbox",),
        ".sinks": ("to_console",),
        "fastroai.store.open_questions": ("Answer", "Question"),
    },
)
