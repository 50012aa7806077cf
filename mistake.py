from fastroai import Pipeline
from fastroai.errors import PipelineValidationError

from support import look_up, reply

try:
    Pipeline(
        "support",
        {"look_up": look_up, "reply": reply},
        dependencies={"reply": ["lookup"]},
        output_step="reply",
    )
except PipelineValidationError as error:
    print(error)
