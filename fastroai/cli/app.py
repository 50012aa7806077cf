"""The commands and their options. The modules `reading`, `running` and their neighbours carry them out."""

# typer 0.25, the newest that can be installed beside huggingface-hub 1.18, has no full types for its options.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fastroai.cli.exits import finish, perform
from fastroai.cli.other_commands import Commands

app = typer.Typer(
    cls=Commands,
    help="FastroAI: runs that are stored, what they cost, and what they wait for.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
)
runs = typer.Typer(cls=Commands, help="Look at runs, continue them, and delete them.", no_args_is_help=True)
app.add_typer(runs, name="runs")
db = typer.Typer(help="Prepare the database of workers.", no_args_is_help=True)
app.add_typer(db, name="db")
review = typer.Typer(help="Answer the questions that runs ask people.", no_args_is_help=True)
app.add_typer(review, name="review")
spend = typer.Typer(
    help="See what runs have spent, and what spend limits have left; change limits.", no_args_is_help=True
)
app.add_typer(spend, name="spend")
workflow = typer.Typer(help="Check, find, write, draw and run workflow specs.", no_args_is_help=True)
app.add_typer(workflow, name="workflow")
flow = typer.Typer(help="Look at flows of workflows, and continue them.", no_args_is_help=True)
app.add_typer(flow, name="flow")
gate = typer.Typer(help="Decide at the gates of flows.", no_args_is_help=True)
app.add_typer(gate, name="gate")
mcp = typer.Typer(
    help="Serve workflows to coding agents over MCP: over stdio, or with --http over streamable HTTP.",
    invoke_without_command=True,
)
app.add_typer(mcp, name="mcp")


def _default_store() -> str:
    from fastroai.cli.places import default_of_option

    return default_of_option()


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        from fastroai.version import __version__

        typer.echo(f"fastroai {__version__} (PydanticAI {version('pydantic-ai-slim')})")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """FastroAI: runs that are stored, what they cost, and what they wait for."""


Store = Annotated[
    str,
    typer.Option(
        envvar="FASTROAI_STORE",
        default_factory=_default_store,
        help="A file, or a URL of Redis or PostgreSQL; by default that of the project or this user.",
        show_default=False,
    ),
]
FlowStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="FASTROAI_STORE",
        help="A file, or a URL of Redis or PostgreSQL; by default that of the project or this user.",
        show_default=False,
    ),
]
Codec = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        envvar="FASTROAI_CODEC",
        help="The codec of the runs, if they have one, as in app:codec.",
        show_default=False,
    ),
]
SpendPlace = Annotated[
    str,
    typer.Option(
        "--store",
        envvar=["FASTROAI_SPEND_STORE", "FASTROAI_STORE"],
        default_factory=_default_store,
        help="The store of the spend limits: a file, or a URL of Redis or PostgreSQL.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Question = Annotated[
    str, typer.Argument(metavar="QUESTION", help="The id of a question.", show_default=False)
]
Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="The key of the limit, as `spend limits` shows it.", show_default=False
    ),
]
WindowName = Annotated[str, typer.Option("--window", help="hour, day, month or total.")]
By = Annotated[
    str | None, typer.Option(help="The person who changes it; by default the user of this machine.")
]
Reason = Annotated[str, typer.Option(help="The reason, which is stored.", show_default=False)]
Limit = Annotated[int, typer.Option(min=1, help="The most to list.")]
OnlyKey = Annotated[str | None, typer.Option(help="Only this key.")]
SpecFile = Annotated[str, typer.Argument(metavar="SPEC", help="A file with a spec.", show_default=False)]
SpecFlow = Annotated[
    str | None, typer.Option(help="The flow; by default the one that runs first.", show_default=False)
]
Output = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The file to write; by default standard output.", show_default=False),
]
FlowId = Annotated[
    str,
    typer.Argument(metavar="FLOW", help="The id of a flow, or RUN/STEP for one inside.", show_default=False),
]
GateStep = Annotated[
    str | None,
    typer.Argument(
        metavar="[STEP]", help="The gate; by default the one at which the flow waits.", show_default=False
    ),
]
Note = Annotated[str, typer.Option(help="The reason for the decision, which is stored.")]
ResolvedBy = Annotated[str, typer.Option("--resolved-by", help="Who has decided: human, agent or system.")]
Form = Annotated[Literal["table", "json", "csv"], typer.Option("--format", help="How to print it.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Target = Annotated[
    str, typer.Option(metavar="MODULE:NAME", help="The pipeline or graph, as module:name, as in app:support.")
]
Deps = Annotated[
    str | None,
    typer.Option(metavar="MODULE:NAME", help="The deps, or a function without arguments that makes them."),
]
Inputs = Annotated[str | None, typer.Option(metavar="JSON", help="Inputs with new values: JSON, or @file.")]


@app.command()
def view(
    store: Annotated[
        str,
        typer.Option(
            "--store",
            "--db",
            envvar="FASTROAI_STORE",
            default_factory=_default_store,
            help="A file, or a URL of Redis or PostgreSQL; by default that of the project or this user.",
            show_default=False,
        ),
    ],
    spend: Annotated[
        str | None,
        typer.Option(
            "--spend",
            envvar="FASTROAI_SPEND_STORE",
            help="The store of the spend limits; by default that of the runs.",
            show_default=False,
        ),
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE[:NAME]",
            help="Pipelines, graphs and flows, so that runs can be resumed and forked. Repeatable.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="The port on 127.0.0.1; 0 for any free one.")] = 8321,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the link.")] = False,
    codec: Codec = None,
) -> None:
    """Look at runs, spending and questions in a browser, and answer, pause and cancel there."""
    from fastroai.cli import viewing

    perform(viewing.view(store, spend, imports or [], port, not no_browser, codec))


@app.command("eval")
def evaluate(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function that returns a Comparison, or an EvaluationReport of pydantic_evals.",
            show_default=False,
        ),
    ],
    least: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]NUMBER",
            help="The least share that passes, or mean score, as in accuracy=0.9; several times. Without a "
            "name, of the first evaluation.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="A file with earlier results: no case may be worse than there.", show_default=False
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="By how much the score of a case may be lower than in the baseline.")
    ] = 0.0,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Write the baseline instead of comparing with it.")
    ] = False,
) -> None:
    """Evaluate, and exit with 1 under a threshold, or if cases got worse than in a baseline."""
    from fastroai.cli import evaluating

    perform(evaluating.evaluate(function, least or [], baseline, tolerance, update_baseline))


Url = Annotated[
    str | None,
    typer.Option(
        help="Where runs and queues are: a file of SQLite, or a URL of PostgreSQL.",
        show_default=False,
    ),
]


@app.command()
def worker(
    imports: Annotated[
        list[str],
        typer.Option(
            "--import",
            metavar="MODULE[:NAME]",
            help="The application (Distributed), or pipelines, graphs and flows. Repeatable.",
            show_default=False,
        ),
    ],
    url: Url = None,
    name: Annotated[
        str | None,
        typer.Option(help="The name of the application, if none is imported.", show_default=False),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            help="A queue from which it takes runs, instead of `default`. Repeatable.",
            show_default=False,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="The most runs at a time of a queue that the application does not declare.",
            show_default=False,
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(help="Seconds that steps have to finish when the worker is stopped.")
    ] = 20.0,
    health: Annotated[
        int | None,
        typer.Option(
            "--health-port",
            help="A port on which /live and /ready answer probes; by default none.",
            show_default=False,
        ),
    ] = None,
    codec: Codec = None,
) -> None:
    """Execute runs of an application, until the process is told to end."""
    from fastroai.cli import working

    perform(working.work(imports, url, name, queues or ["default"], concurrency, grace, health, codec))


@db.command("upgrade")
def upgrade_database(url: Url = None) -> None:
    """Make the tables for runs and queues at --url, or bring them up to date."""
    from fastroai.cli import working

    perform(working.upgrade(url))


@runs.command("release")
def release_run(run: Run, store: Store) -> None:
    """Let workers run a run again that was set aside because they died while they ran it."""
    from fastroai.cli import working

    perform(working.release(store, run))


@runs.command("list")
def list_runs(
    store: Store,
    status: Annotated[
        str | None,
        typer.Option(help="running, finished, paused, failed, cancelled, interrupted or unreadable."),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(help="Only runs of the pipeline, graph or workflow with this name.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only runs with this tag.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only runs of this tenant.")] = None,
    limit: Limit = 100,
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    from fastroai.cli import reading

    perform(reading.list_runs(store, status, pipeline, tag, tenant, limit, codec, as_json))


@runs.command()
def show(run: Run, store: Store, codec: Codec = None, as_json: AsJson = False) -> None:
    """Show the steps of a run, with status, time and cost."""
    from fastroai.cli import reading

    perform(reading.show(run, store, codec, as_json))


@runs.command()
def trace(run: Run, store: Store, codec: Codec = None, as_json: AsJson = False) -> None:
    """Tell why each step of a run started, waited, was retried or was skipped."""
    from fastroai.cli import reading

    perform(reading.trace(run, store, codec, as_json))


@runs.command()
def transcript(
    run: Run,
    store: Store,
    step: Annotated[
        str | None, typer.Option(help="Only this step, as `runs show` names it, or a path in the run.")
    ] = None,
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """Show what agents and models said to each other in a run."""
    from fastroai.cli import reading

    perform(reading.transcript(run, step, store, codec, as_json))


@runs.command()
def diff(
    run: Run,
    other: Annotated[
        str, typer.Argument(metavar="OTHER", help="The id of the other run.", show_default=False)
    ],
    store: Store,
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs, ignoring ids and times. Exits with 1 if they differ."""
    from fastroai.cli import reading

    perform(reading.diff(run, other, store, codec, as_json))


@runs.command()
def resume(
    run: Run,
    store: Store,
    pipeline: Target,
    deps: Deps = None,
    inputs: Inputs = None,
    answer: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="The answer that a graph waits for: JSON, or @file."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="The node that is answered; by default the one that asked first.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Continue even if the pipeline has changed or a process is running it."),
    ] = False,
    on_changed: Annotated[
        str | None,
        typer.Option(
            metavar="ask|keep|fail",
            help="What to do with stored answers whose prompt, model or output type has changed.",
        ),
    ] = None,
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """Continue a run that was interrupted, failed, or paused."""
    from fastroai.cli import running

    perform(
        running.resume(run, store, pipeline, deps, inputs, answer, node, force, on_changed, codec, as_json)
    )


@runs.command()
def fork(
    run: Run,
    store: Store,
    pipeline: Target,
    at: Annotated[
        str | None, typer.Option(metavar="STEP", help="The step to run again, with all steps that need it.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="The id of the new run.")] = None,
    deps: Deps = None,
    inputs: Inputs = None,
    outputs: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="Outputs to use in place of those of the run, by step: JSON, or @file."
        ),
    ] = None,
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """Start a new run from a step of this one. What happened before that step is reused, at no cost."""
    from fastroai.cli import running

    perform(running.fork(run, store, pipeline, at, run_id, deps, inputs, outputs, codec, as_json))


@runs.command()
def delete(
    run: Run,
    store: Store,
    force: Annotated[
        bool, typer.Option("--force", help="Delete it even if a process is running it, or it cannot be read.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a run."""
    from fastroai.cli import forgetting

    perform(forgetting.delete(run, store, force, yes, as_json))


@runs.command()
def purge(
    store: Store,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="An age, as in 12h, 30d or 8w.")],
    status: Annotated[str | None, typer.Option(help="Only runs with this status.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the runs in which nothing has happened for the given age, except those that are running."""
    from fastroai.cli import forgetting

    perform(forgetting.purge(store, older_than, status, dry_run, yes, as_json))


@runs.command()
def send(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the message.", show_default=False)],
    store: Store,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="The message: JSON, text or @file.", show_default=False)
    ] = "null",
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """Send a message to a run, which a step receives with ctx.receive."""
    from fastroai.cli import reviewing

    perform(reviewing.send(run, name, value, store, codec, as_json))


@review.command("list")
def list_questions(
    store: Store,
    pipeline: Annotated[
        str | None, typer.Option(help="Only questions of this pipeline, graph or workflow.")
    ] = None,
    limit: Limit = 100,
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """List the questions that wait for an answer, those of the newest run first."""
    from fastroai.cli import reviewing

    perform(reviewing.list_questions(store, pipeline, limit, codec, as_json))


@review.command("show")
def show_question(question: Question, store: Store, codec: Codec = None, as_json: AsJson = False) -> None:
    """Show a question that waits for an answer."""
    from fastroai.cli import reviewing

    perform(reviewing.show(question, store, codec, as_json))


@review.command()
def answer(
    question: Question,
    value: Annotated[
        str,
        typer.Argument(metavar="ANSWER", help="The answer: text, JSON, or @file.", show_default=False),
    ],
    store: Store,
    reviewer: Annotated[str, typer.Option(help="The person who answers.")] = "",
    rationale: Annotated[str, typer.Option(help="The reason for the answer.")] = "",
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """Store the answer to a question. The run continues when it is resumed."""
    from fastroai.cli import reviewing

    perform(reviewing.answer(question, value, store, reviewer, rationale, codec, as_json))


@flow.command("list")
def list_flows(
    store: FlowStore = None,
    limit: Limit = 100,
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """List the flows of workflows, newest first."""
    from fastroai.cli import flows

    perform(flows.list_flows(store, limit, codec, as_json))


@flow.command("show")
def show_flow(flow: FlowId, store: FlowStore = None, codec: Codec = None, as_json: AsJson = False) -> None:
    """Show how far a flow is, and what is due in it."""
    from fastroai.cli import flows

    perform(flows.show(flow, store, codec, as_json))


@flow.command("audit")
def audit_flow(flow: FlowId, store: FlowStore = None, codec: Codec = None, as_json: AsJson = False) -> None:
    """Tell everything that happened in a flow: attempts, decisions, rounds, costs."""
    from fastroai.cli import flows

    perform(flows.audit(flow, store, codec, as_json))


@flow.command("resume")
def resume_flow(flow: FlowId, store: FlowStore = None, codec: Codec = None, as_json: AsJson = False) -> None:
    """Show the step of a flow that is due, as agents see it. A gate whose time is over kills the flow."""
    from fastroai.cli import flows

    perform(flows.resume(flow, store, codec, as_json))


@flow.command("revert")
def revert_flow(
    flow: FlowId,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="The checkpoint.", show_default=False)],
    store: FlowStore = None,
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """Go back to a checkpoint of a flow. What happened since then stays in the log."""
    from fastroai.cli import flows

    perform(flows.revert(flow, label, store, codec, as_json))


@gate.command("list")
def list_gates(
    store: FlowStore = None,
    limit: Limit = 100,
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """List the gates that wait for a decision, those of the newest flow first."""
    from fastroai.cli import flows

    perform(flows.list_gates(store, limit, codec, as_json))


def _decides(command: str, outcome: Literal["approve", "revise", "kill"], help: str) -> None:
    """Add a command that decides at a gate."""

    @gate.command(command, help=help)
    def decide(
        flow: FlowId,
        step: GateStep = None,
        note: Note = "",
        resolved_by: ResolvedBy = "human",
        store: FlowStore = None,
        codec: Codec = None,
        as_json: AsJson = False,
    ) -> None:
        from fastroai.cli import flows

        perform(flows.decide(outcome, flow, step, note, resolved_by, store, codec, as_json))


_decides("approve", "approve", "Approve: the flow continues.")
_decides("reject", "kill", "Kill: the flow cleans up, if the spec says how, and ends.")
_decides(
    "revise",
    "revise",
    "Send the flow back: an earlier step, and all after it, are done again in a new round.",
)


@mcp.callback()
def serve(
    context: typer.Context,
    store: FlowStore = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve streamable HTTP there, as in 127.0.0.1:8321."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name by which clients call the server. Repeatable."),
    ] = None,
    workspace: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The only folder whose files checks and tools read.")
    ] = Path(),
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The key that all servers on the store share; FASTROAI_MCP_KEY or a file beside the store "
            "unless given.",
            show_default=False,
        ),
    ] = None,
    trust_client: Annotated[
        bool,
        typer.Option(
            "--trust-client",
            help="Trust the client when it says that a person has decided at a gate: the decision is "
            "stored as human, and not as agent.",
        ),
    ] = False,
    codec: Codec = None,
) -> None:
    """Serve workflows to coding agents over MCP: over stdio, or with --http over streamable HTTP."""
    if context.invoked_subcommand is not None:
        return
    from fastroai.cli import serving

    perform(serving.serve(store, http, allow_host or [], workspace, key_file, trust_client, codec))


Clients = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME",
        help="claude-code, cursor, codex, vscode or gemini-cli. Repeatable; those that are found, unless "
        "given. For any other name, the configuration is printed.",
        show_default=False,
    ),
]
SetupScope = Annotated[
    Literal["project", "user"],
    typer.Option("--scope", help="project: for one project; user: for all projects of this user."),
]
Project = Annotated[Path, typer.Option("--project", metavar="FOLDER", help="The folder of the project.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes as a diff, and change nothing.")]


@mcp.command("install")
def mcp_install(
    client: Clients = None,
    scope: SetupScope = "project",
    project: Project = Path(),
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help="server, instructions, skills or hooks. Repeatable; by default all.",
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="How clients start FastroAI, as in 'uv run fastroai'; by default this installation.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Set coding agents up: their MCP configuration, instructions, skills and hooks."""
    from fastroai.cli import installing

    perform(installing.install(client or [], scope, project, part or [], command, dry_run, as_json))


@mcp.command("uninstall")
def mcp_uninstall(
    client: Clients = None,
    scope: SetupScope = "project",
    project: Project = Path(),
    keep_skills: Annotated[
        bool, typer.Option("--keep-skills", help="Keep all skills; edited ones are always kept.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove what `mcp install` has written."""
    from fastroai.cli import installing

    perform(installing.uninstall(client or [], scope, project, keep_skills, dry_run, as_json))


@mcp.command("hook", hidden=True)
def mcp_hook(name: str, client: Annotated[str, typer.Option()] = "") -> None:
    """Answer an event of a coding agent, which is JSON on standard input; `mcp install` sets this up."""
    from fastroai.cli import hooking

    hooking.hook(name, client)


@spend.command("report")
def spend_report(
    store: Store,
    by: Annotated[
        str,
        typer.Option(
            help="Fields of the rows: day, pipeline, step, model, tenant, tag; separate several with commas."
        ),
    ] = "day",
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="An age, as in 7d, or a day or time of UTC.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="As --since; the period ends before it.")
    ] = None,
    form: Form = "table",
    as_json: AsJson = False,
) -> None:
    """Add up what all stored runs have spent, by time and name."""
    from fastroai.cli import spending

    perform(spending.report(store, by, since, until, form, as_json))


@spend.command("limits")
def spend_limits(
    store: SpendPlace,
    key: OnlyKey = None,
    window: Annotated[str | None, typer.Option(help="Only windows of this kind.")] = None,
    closed: Annotated[bool, typer.Option("--closed", help="Also windows that are over.")] = False,
    form: Form = "table",
    as_json: AsJson = False,
) -> None:
    """List what each spend limit has spent, reserved and left."""
    from fastroai.cli import limits

    perform(limits.limits(store, key, window, closed, form, as_json))


@spend.command("set")
def spend_set(
    key: Key,
    usd: Annotated[
        str,
        typer.Argument(
            metavar="USD",
            help="The new limit in US dollars, or `default` for the one in code.",
            show_default=False,
        ),
    ],
    store: SpendPlace,
    reason: Reason,
    window: WindowName = "day",
    new: Annotated[
        bool, typer.Option("--new", help="Also if nothing has been spent under this key yet.")
    ] = False,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Raise or lower a spend limit, in all processes, until the end of its window."""
    from fastroai.cli import limits

    perform(limits.set_limit(store, key, usd, window, new, by, reason, as_json))


@spend.command("reset")
def spend_reset(
    key: Key,
    store: SpendPlace,
    reason: Reason,
    window: WindowName = "day",
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Set the spending of the open window of a spend limit to zero."""
    from fastroai.cli import limits

    perform(limits.reset(store, key, window, by, reason, as_json))


@spend.command("adjustments")
def spend_adjustments(
    store: SpendPlace,
    key: OnlyKey = None,
    form: Form = "table",
    as_json: AsJson = False,
) -> None:
    """List the changes by hand: the person, the time, the reason, and the amounts before and after."""
    from fastroai.cli import limits

    perform(limits.adjustments(store, key, form, as_json))


@workflow.command("validate")
def validate_workflow(
    files: Annotated[
        list[str], typer.Argument(metavar="SPEC...", help="Files with specs.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Check specs, and list everything that is wrong with them."""
    from fastroai.cli import specs

    finish(lambda: specs.validate(files, as_json))


@workflow.command("list")
def list_workflows(
    folder: Annotated[str, typer.Argument(metavar="[FOLDER]", help="The folder to search.")] = ".",
    as_json: AsJson = False,
) -> None:
    """List the workflows of a folder: its files *.stratum.yaml and *.workflow.yaml."""
    from fastroai.cli import specs

    finish(lambda: specs.list_specs(folder, as_json))


@workflow.command("compile")
def compile_workflow(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The folder of the task files *.md.", show_default=False)
    ],
    flow: Annotated[str, typer.Option(help="The name of the workflow and its flow.")] = "tasks",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Make a spec of task files of spec-kit."""
    from fastroai.cli import specs

    finish(lambda: specs.compile_tasks(folder, flow, output, as_json))


@workflow.command("run")
def run_workflow(
    file: SpecFile,
    flow: SpecFlow = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=VALUE",
            help="An input: text, or JSON if the input is not a string. Repeatable.",
        ),
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="JSON", help="All inputs: a JSON object, or @file.")
    ] = None,
    functions: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="A mapping of functions by name, as in app:functions."),
    ] = None,
    agents: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="A mapping of FastroAgents by name, as in app:agents."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="PROVIDER:MODEL", help="The model of steps whose spec names none.")
    ] = None,
    deps: Deps = None,
    store: FlowStore = None,
    run_id: Annotated[
        str | None, typer.Option(help="The id of the run. If the store has that run, it continues.")
    ] = None,
    workspace: Annotated[str, typer.Option(help="The folder whose files the checks see.")] = ".",
    codec: Codec = None,
    as_json: AsJson = False,
) -> None:
    """Run a workflow with agents, functions and people. Exits with 0 if it is complete or waits at a gate."""
    from fastroai.cli import workflow_runs

    perform(
        workflow_runs.run(
            file,
            flow,
            inputs,
            given or [],
            functions,
            agents,
            model,
            deps,
            store,
            run_id,
            workspace,
            codec,
            as_json,
        )
    )


@workflow.command("draw")
def draw_workflow(
    file: SpecFile,
    flow: SpecFlow = None,
    form: Annotated[
        Literal["mermaid", "svg"], typer.Option("--format", help="The language of the drawing.")
    ] = "mermaid",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Draw a flow of a spec, with every way between its steps."""
    from fastroai.cli import specs

    finish(lambda: specs.draw(file, flow, form, output, as_json))
