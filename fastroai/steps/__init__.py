"""Steps, their context, and their configuration.

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.steps.base import BaseStep as BaseStep
    from fastroai.steps.base import FunctionStep as FunctionStep
    from fastroai.steps.base import step as step
    from fastroai.steps.config import ExecutionConfig as ExecutionConfig
    from fastroai.steps.config import PipelineConfig as PipelineConfig
    from fastroai.steps.config import ResolvedConfig as ResolvedConfig
    from fastroai.steps.config import StepConfig as StepConfig
    from fastroai.steps.context import StepContext as StepContext
    from fastroai.steps.conversation import ConversationState as ConversationState
    from fastroai.steps.conversation import ConversationStatus as ConversationStatus
    from fastroai.steps.reserving import Spend as Spend
    from fastroai.steps.reserving import spend as spend
    from fastroai.steps.usage import StepUsage as StepUsage
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(__name__)
