"""The pipelines of the demo. `fastroai view --import demo.pipelines` resumes and forks their runs."""

from pydantic import BaseModel

from fastroai import FastroAgent
from fastroai.pipelines import BaseStep, Pipeline, StepContext, step

TICKETS = {
    "T-1": "My parcel 4711 has not come, and the birthday is on Friday. Can you help?",
    "T-2": "The lamp came broken. I want my $340 back.",
    "T-3": "How do I change the address of my order?",
    "T-4": "The app logs me out every hour.",
    "T-5": "Do you ship to Norway?",
    "T-6": "Please send the invoice for order 1182 again.",
}


class Reading(BaseModel):
    """What a ticket is about."""

    topic: str
    refund_usd: int = 0


reader = FastroAgent("openai:gpt-5-nano", name="reader", output_type=Reading, instructions="Read the ticket.")
writer = FastroAgent("openai:gpt-5-mini", name="writer", instructions="Answer the customer in two sentences.")


@step
async def read(ctx: StepContext) -> Reading:
    """Say what the ticket is about, with a small model."""
    return (await ctx.run(reader, ctx.get_input("ticket", str))).output


@step
async def approve(ctx: StepContext) -> str:
    """Ask a person before money is paid back."""
    refund = ctx.get_dependency("read", Reading).refund_usd
    if refund < 100:
        return "No decision is needed."
    approved = await ctx.ask(f"Pay ${refund} back?", bool, to="team lead")
    return f"The refund of ${refund} is {'approved' if approved else 'refused'}."


@step
async def reply(ctx: StepContext) -> str:
    """Write the reply, with a larger model."""
    prompt = f"{ctx.get_input('ticket', str)}\n\nDecision: {ctx.get_dependency('approve', str)}"
    async with ctx.run_stream(writer, prompt) as stream:
        return "".join([chunk.content async for chunk in stream])


support = Pipeline(
    "support",
    {"read": read, "approve": approve, "reply": reply},
    {"approve": ["read"], "reply": ["approve"]},
)


def ticket(name: str) -> BaseStep[object, str]:
    """Return the pipeline as a step that answers one ticket."""
    return support.as_step(lambda ctx: {"ticket": TICKETS[name]})


night_shift = Pipeline(
    "night-shift",
    {name: ticket(name) for name in ("T-1", "T-3", "T-4", "T-5", "T-6")},
    {"T-3": ["T-1"], "T-4": ["T-3"], "T-5": ["T-4"], "T-6": ["T-5"]},
    output_step="T-6",
)
