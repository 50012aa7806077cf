from fastroai import Pipeline, StepContext, StepExecutionError, step

from support import look_up, topics


@step(retries=1, retry_delay=0)
async def reply(ctx: StepContext) -> str:
    raise ConnectionError("the mail server does not answer")


support = Pipeline(
    "support",
    {"topic": topics.as_step("I was charged twice."), "look_up": look_up, "reply": reply},
    dependencies={"reply": ["topic", "look_up"]},
)
try:
    support.execute_sync()
except StepExecutionError as error:
    print(error)
    print(dict(error.step_outputs))
    print(f"spent ${error.usage.cost_usd}")
