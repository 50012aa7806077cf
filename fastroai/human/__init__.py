"""The waits of runs: for answers of people, for messages, for points in time.

`ctx.ask` asks, and the inbox lists and answers; `send_message` sends what `ctx.receive` receives.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.human.inbox import Inbox as Inbox
    from fastroai.human.messages import send_message as send_message
    from fastroai.human.sinks import to_console as to_console
    from fastroai.human.waiting import Awaited as Awaited
    from fastroai.human.waiting import StepWait as StepWait
    from fastroai.store.open_questions import Answer as Answer
    from fastroai.store.open_questions import Question as Question
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(__name__)
