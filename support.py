from pathlib import Path

from fastroai import Budget, FastroAgent, Pipeline, StepContext, step

topics = FastroAgent("openai:gpt-5-nano", instructions="Name the topic.")
writer = FastroAgent("openai:gpt-5-mini", instructions="Write a reply.")


@step
async def look_up(ctx: StepContext) -> str:
    return "order 1182, two charges"  # ask your database here


@step
async def reply(ctx: StepContext) -> str:
    topic = ctx.get_dependency("topic", str)
    order = ctx.get_dependency("look_up", str)
    text = ctx.get_input("text", str)
    answer = await ctx.run(writer, f"{topic}, {order}: {text}")
    return answer.output


support = Pipeline(
    "support",
    {
        "topic": topics.as_step(lambda ctx: ctx.get_input("text", str)),
        "look_up": look_up,
        "reply": reply,
    },
    dependencies={"reply": ["topic", "look_up"]},
)

if __name__ == "__main__":
    result = support.execute_sync(
        {"text": "I was charged twice."}, budget=Budget(usd="0.05")
    )
    print(result.output)
    for name, usage in result.usage.steps.items():
        print(f"{name}: ${usage.cost_usd}")
    print(f"1,000 tickets: ${result.usage.cost_usd * 1000:.2f}")
    Path("support.svg").write_text(support.to_svg(result))
