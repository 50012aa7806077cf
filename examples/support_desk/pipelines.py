"""The work: one pipeline for a ticket, and one around it for a whole folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import anyio
from desk import Agents, Classification, Desk, Facts, Review
from documents import Document, Ticket, prepare

from fastroai import (
    Budget,
    BudgetExceeded,
    FastroAgent,
    Pipeline,
    PipelineConfig,
    PipelineResult,
    StepContext,
    step,
)
from fastroai.pipelines import ConversationState, ConversationStatus, RunEvent
from fastroai.records import Usage

# --- one ticket ---


@dataclass(frozen=True)
class Reply:
    """What goes back to the customer."""

    text: str
    issues: tuple[str, ...] = ()
    """What the review found, and the revision put right."""


NO_TEXT = "Your message reached us without any text. Please tell us again what we can do for you."


@step
def preprocess(ctx: StepContext[Desk]) -> Ticket | ConversationState[Ticket]:
    """Not `async`, so it runs in a worker thread. Without any text there is only a question to ask back."""
    ticket = prepare(ctx.get_input("document"))
    if not ticket.text:
        return ConversationState(ConversationStatus.INCOMPLETE, ticket, {"question": NO_TEXT})
    return ticket


@step
async def write(ctx: StepContext[Desk]) -> str:
    classification = ctx.get_dependency("classify", Classification)
    prompt = ticket_prompt(ctx, classification=classification.model_dump_json(), facts=facts_of(ctx))
    return await streamed(ctx, ctx.deps.agents.writer, prompt)


@step
async def revise(ctx: StepContext[Desk]) -> Reply:
    draft, review = ctx.get_dependency("write", str), ctx.get_dependency("review", Review)
    if review.approved:
        return Reply(draft)
    issues = "\n".join(review.issues)
    prompt = ticket_prompt(ctx, facts=facts_of(ctx), reply=draft, issues=issues)
    return Reply(await streamed(ctx, ctx.deps.agents.reviser, prompt), tuple(review.issues))


def review_prompt(ctx: StepContext[Desk]) -> str:
    return ticket_prompt(ctx, facts=facts_of(ctx), reply=ctx.get_dependency("write", str))


class TicketInputs(TypedDict):
    """The inputs of the pipeline for one document."""

    document: Document


def ticket_pipeline(agents: Agents) -> Pipeline[Desk, TicketInputs, Reply]:
    """From a document to a reply. A failing step keeps what does not need it, and what was spent."""
    return Pipeline[Desk, TicketInputs, Reply](
        "ticket",
        steps={
            "preprocess": preprocess,
            "classify": agents.classifier.as_step(ticket_prompt),
            "extract": agents.extractor.as_step(ticket_prompt),
            "write": write,
            "review": agents.reviewer.as_step(review_prompt),
            "revise": revise,
        },
        dependencies={
            "classify": ["preprocess"],
            "extract": ["preprocess"],
            "write": ["classify", "extract"],
            "review": ["write"],
            "revise": ["review"],
        },
        config=PipelineConfig(timeout=120, retries=2, on_error="continue"),
    )


def ticket_prompt(ctx: StepContext[Desk], **blocks: str) -> str:
    """What our own agents found, then the ticket. It comes last, so that nothing in it can end it early."""
    ticket = ctx.get_dependency("preprocess", Ticket)
    ours = "".join(f"<{name}>\n{content}\n</{name}>\n" for name, content in blocks.items())
    return f"{ours}<ticket>\n{ticket.text}\n</ticket>"


def facts_of(ctx: StepContext[Desk]) -> str:
    return ctx.get_dependency("extract", Facts).model_dump_json()


async def streamed(ctx: StepContext[Desk], agent: FastroAgent[Desk, str], prompt: str) -> str:
    """The whole of a streamed answer; whoever listens to the run gets its pieces as they come."""
    return "".join([chunk.content async for chunk in ctx.run_stream(agent, prompt)])


# --- a folder of them ---


@dataclass(frozen=True)
class Answered:
    """What became of one document."""

    document: Document
    result: PipelineResult[Reply] | None
    """`None` if the budget of the whole run stopped it."""
    stopped_by: BudgetExceeded | None = None

    @property
    def outcome(self) -> Literal["answered", "asked for text", "failed", "stopped by the budget"]:
        """What it comes down to."""
        if self.result is None:
            return "stopped by the budget"
        if self.result.stopped_early:
            return "asked for text"
        return "failed" if self.result.output is None else "answered"

    @property
    def reply(self) -> str | None:
        """What to send to the customer, if there is anything."""
        if self.result is None:
            return None
        if self.result.conversation_state is not None:
            return str(self.result.conversation_state.context["question"])
        return None if self.result.output is None else self.result.output.text

    @property
    def problems(self) -> list[str]:
        """Why it has no reply; one line each."""
        if self.result is None:
            return [str(self.stopped_by)]
        return [f"{step}: {type(error).__name__}: {error}" for step, error in self.result.errors.items()]

    @property
    def usage(self) -> Usage:
        """What it has cost, finished or not."""
        if self.result is not None:
            return self.result.usage.total
        return self.stopped_by.usage if self.stopped_by is not None else Usage()


class DeskInputs(TypedDict):
    """The inputs of the pipeline for a folder of documents."""

    documents: Sequence[Document]


def desk_pipeline(
    tickets: Pipeline[Desk, TicketInputs, Reply],
    *,
    concurrency: int,
    budget: Budget,
    on_event: Callable[[Document, RunEvent], None],
) -> Pipeline[Desk, DeskInputs, list[Answered]]:
    """All documents, so many at a time, under one budget. `on_event` sees what happens to each of them."""

    @step
    async def answer_one(ctx: StepContext[Desk]) -> Answered:
        document: Document = ctx.get_input("item")
        stream = tickets.stream({"document": document}, ctx.deps, progress="auto")
        try:
            async for event in stream:
                on_event(document, event)
        except BudgetExceeded as stop:
            # The budget is that of the whole run. Raised from here it would cancel the tickets in progress,
            # which are being paid for; so each of them ends at its own next request.
            return Answered(document, None, stop)
        answered = Answered(document, stream.result)
        if answered.reply is not None:
            # At once: a run that is interrupted keeps what it has done.
            reply = anyio.Path(ctx.deps.outbox, document.name)
            await reply.write_text(answered.reply + "\n", encoding="utf-8")
        return answered

    @step
    async def answer_all(ctx: StepContext[Desk]) -> list[Answered]:
        return await ctx.map(answer_one, ctx.get_input("documents"), concurrency=concurrency)

    return Pipeline[Desk, DeskInputs, list[Answered]](
        "support desk",
        steps={"answer": answer_all},
        config=PipelineConfig(budget=budget),
    )
