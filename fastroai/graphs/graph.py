"""`Graph`: nodes, and edges that say which comes next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic

from pydantic import JsonValue
from typing_extensions import Unpack

from fastroai.calls.call import AgentLike
from fastroai.contracts.accepted import Accepted, Accepts
from fastroai.contracts.annotations import Annotation
from fastroai.drawing import Drawing, mermaid, svg
from fastroai.errors import BudgetExceeded, ConfigurationError, TimeLimitExceeded, attach_trace
from fastroai.graphs.conversation.conversation import ConversationLike, GraphConversation
from fastroai.graphs.definition import define
from fastroai.graphs.errors import GraphStopped
from fastroai.graphs.machine.replay import first_divergence, needed_by_graph
from fastroai.graphs.machine.sends import Send
from fastroai.graphs.machine.writes import writes_of
from fastroai.graphs.questions import answer_entry
from fastroai.graphs.result import GraphResult, GraphStream, OutputT
from fastroai.graphs.resuming import GraphResumes, resuming
from fastroai.graphs.run import GraphRun
from fastroai.graphs.setup import GraphSetup, configs_of
from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.node import Node, NodeLike, nodes_of
from fastroai.graphs.shape.plan import OnBranchFailure, OnConflict, Reducer
from fastroai.graphs.shape.validation import build_plan
from fastroai.human.answers import answers_to
from fastroai.keyword_options import takes_options
from fastroai.other_names import OTHER_CALLS, OTHER_OPTIONS, other_names
from fastroai.records import NOT_GIVEN, Duration, NotGiven, in_seconds
from fastroai.rows.child_runs import RunRows, parameters_of
from fastroai.rows.door import MapsRows
from fastroai.rows.target import RowTarget
from fastroai.runs.around import how_it_ended
from fastroai.runs.door import FrontDoor, check_config, check_version
from fastroai.runs.execution import Execution
from fastroai.runs.nesting import NestedStep
from fastroai.runs.openings import AlsoOnRecord, RunKeeper, needed_store
from fastroai.runs.request import RunRequest
from fastroai.runs.signatures import DEFAULTS, DepsT, InputT, ResumeOptions, blocking_twin
from fastroai.runtime import blocking
from fastroai.steps import BaseStep, PipelineConfig, StepConfig, StepContext
from fastroai.steps.config import limits_in
from fastroai.steps.context import scope_of
from fastroai.steps.contracts import bind_contract, declared_output
from fastroai.steps.hooks import Hooks, RunHooks
from fastroai.store.open_questions import Question, questions_of_run
from fastroai.store.reading.trace import Divergence, RunTrace
from fastroai.store.record.headers import read_header
from fastroai.store.run_store import RunStore, RunStoreLike
from fastroai.usage import Budget, BudgetLike, Quote
from fastroai.usage.limits import NO_LIMITS, limits_of, together

logger = logging.getLogger("fastroai.graphs")

_NOT_RESUMABLE: Final = (
    "run %r pauses at %s and cannot be resumed from there, because no store keeps it: run(..., store=...)"
)


@other_names(
    arguments={
        **OTHER_OPTIONS,
        "recursion_limit": "max_steps=",
        "interrupt_after": "pause_nodes=",
        "interrupt_before": "ctx.ask(…) at the beginning of the step",
        "entry_node": "entry=",
        "terminal_nodes": "terminals=",
        "goal_id": "goal=, a text",
        "success_criteria": "goal=, a text that says them",
        "constraints": "goal=, a text that says them",
        "default_model": "the model of each agent",
        "identity_prompt": "instructions= of the agents",
        "loop_config": "AgentNode(max_iterations=…)",
        "conversation_mode": "conversation=",
        "max_retries_per_node": "config=PipelineConfig(retries=…)",
        "memory_conflict_strategy": "on_conflict=",
        "branch_timeout_seconds": "branch_timeout=",
    },
    attributes={
        "add_node": "Graph(nodes={name: step})",
        "add_edge": "Graph(edges=[Edge(source, target)])",
        "add_conditional_edges": 'Graph(edges=[Edge(source, target, when="conditional", condition="…")])',
        "compile": "left out: a graph is checked when it is made",
        **OTHER_CALLS,
    },
)
class Graph(
    FrontDoor[DepsT, InputT, GraphResult[OutputT]], MapsRows[OutputT], Generic[DepsT, InputT, OutputT]
):
    """A state machine: nodes are steps, and edges say which node comes next, and when.

        graph = Graph(
            "support",
            nodes={"classify": Node(classify, writes=["category", "confidence"]), "reply": reply, "ask": ask},
            edges=[
                Edge("classify", "reply", when="conditional", condition="confidence >= 0.8"),
                Edge("classify", "ask", when="always"),  # if no condition holds
            ],
        )
        result = await graph.run({"ticket": "..."}, deps=deps)
        result.status, result.output, result.path

    The inputs of a run and the values that nodes write are the memory of the run, which nodes and conditions
    read. If a node fails, `run` does not raise: the result says how the run ended.

    Write `Graph[Deps, Ticket, str](...)` to tell the editor the types of `deps`, of the inputs and of the
    output. The type of the inputs is a TypedDict or any other mapping, such as `dict[str, str]`.
    """

    kind = "graph"

    def __init__(
        self,
        name: str,
        goal: str | None = None,
        *,
        nodes: Mapping[str, NodeLike[DepsT]],
        edges: Sequence[Edge] = (),
        decider: AgentLike[Any] | None = None,
        entry: str | None = None,
        terminals: Sequence[str] | None = None,
        pause_nodes: Collection[str] = (),
        max_steps: int | None = None,
        on_branch_failure: OnBranchFailure = "fail_all",
        on_conflict: OnConflict = "last_wins",
        reducers: Mapping[str, Reducer] | None = None,
        branch_timeout: Duration | None = None,
        max_concurrency: int | None = None,
        budget: BudgetLike | None = None,
        config: PipelineConfig | None = None,
        conversation: ConversationLike = "continuous",
        accepts: type[InputT] | Accepts | None = None,
        version: str | None = None,
    ) -> None:
        """Check and plan the graph.

        Args:
            name: Name in traces and errors.
            goal: What the graph should achieve. Agents in its nodes, judges and the decider are told this.
            nodes: Nodes by id: steps, `agent.as_step(...)`, pipelines, routers, graphs, or `Node(step, ...)`.
            edges: The edges. Conditions are evaluated in this order.
            decider: The agent that decides between `llm_decide` edges.
            entry: The first node; by default the one node without incoming edges.
            terminals: The last nodes; by default the nodes without outgoing edges.
            pause_nodes: Nodes whose output is a question to a person; `resume(run_id, input=...)` answers. It
                needs a store: a run without one logs a warning when it begins, and its pause is its end.
            max_steps: Maximum number of visits to nodes; a run that would make more fails. 100 by default, or
                three for each node if that is more.
            on_branch_failure: What the failure of a branch does to other branches of its fork. `"fail_all"`
                cancels them; `"continue_others"` goes on without the failed branch; `"wait_all"` waits for
                all branches and runs their join, which finds the failures in `ctx.errors`.
            on_conflict: Which value is kept if two branches write one key: `"last_wins"`, `"first_wins"` or
                `"error"`. With the default, a warning in the log says what was overwritten.
            reducers: How values that branches wrote to the same key are combined, as in
                `{"notes": "append"}`: `"append"`, `"merge"`, `"add"`, a function of two values, or a word of
                `on_conflict`; see `Reducer`.
            branch_timeout: Seconds for which the nodes of each branch of a fork may run, all together; a
                branch that takes longer fails. Time spent waiting for a place under `max_concurrency`, for
                another attempt or for a person does not count.
            max_concurrency: How many nodes run at once, at most; by default that of the config.
            budget: Budget of a run of the whole graph, beside that of the config.
            config: Settings of the graph, and defaults for its nodes. Nodes have two `retries` unless this
                config or their own sets others.
            conversation: `"continuous"` threads one message history through the nodes, `"isolated"` gives
                each call of an agent a fresh one; a `GraphConversation` has more options.
            accepts: The inputs of a run: types by name, or a TypedDict, model or dataclass with these names.
            version: Name of this version of the definition. It is on record with its runs, and in the error
                if the definition has changed since a run was started.

        Raises:
            GraphValidationError: the graph cannot run. The error lists every problem.
            ConfigurationError: an option is invalid.
        """
        if not isinstance(name, str) or not name:
            raise ConfigurationError("name", name, "a non-empty string")
        if not isinstance(nodes, Mapping):
            raise ConfigurationError("nodes", nodes, "a mapping of node ids to steps")
        check_config(config)
        if goal is not None and not isinstance(goal, str):
            raise ConfigurationError("goal", goal, "a text")
        if decider is not None and not isinstance(decider, AgentLike):
            expected = "a FastroAgent; of a PydanticAI agent, FastroAgent(agent=agent)"
            raise ConfigurationError("decider", decider, expected)
        check_version(version)
        self.name, self.goal, self.version = name, goal, version
        self.nodes: Mapping[str, Node[DepsT]] = MappingProxyType(nodes_of(nodes))
        self.config: PipelineConfig = config or PipelineConfig()
        self._accepts = None if accepts is None else Accepted(accepts)
        self._plan = build_plan(
            name,
            self.nodes,
            edges,
            entry=entry,
            terminals=terminals,
            pause_nodes=pause_nodes,
            decider=decider,
            max_steps=max_steps,
            on_branch_failure=on_branch_failure,
            on_conflict=on_conflict,
            reducers=reducers,
            branch_timeout=branch_timeout,
            max_concurrency=self.config.max_concurrency if max_concurrency is None else max_concurrency,
            conversation=conversation,
            config=config,
            accepts=self._accepts,
        )
        self.edges: tuple[Edge, ...] = tuple(edges)
        self._budget, self._max_concurrency = budget, max_concurrency
        self._limits = together(limits_of(budget), limits_in(self.config))
        configs, sending = configs_of(self.nodes, self._plan.asking, self.config), self._plan.sending
        self._setup = GraphSetup(
            name=name,
            goal=goal,
            plan=self._plan,
            nodes=self.nodes,
            configs=configs,
            contracts={
                node_id: contract
                for node_id, node in self.nodes.items()
                if (contract := bind_contract(node.step)) is not None
            },
            input_types={} if self._accepts is None else self._accepts.types,
            declared={
                node_id: declared
                for node_id, node in self.nodes.items()
                if (declared := declared_output(node.step) or (list[Send] if node_id in sending else None))
            },
            answers={
                node_id: node.answer_type
                for node_id, node in self.nodes.items()
                if not isinstance(node.answer_type, NotGiven)
            },
            decider=decider,
            conversation=GraphConversation.of(conversation),
            branch_timeout=in_seconds(branch_timeout),
        )
        hooks = {node_id: configs[node_id].hooks for node_id in self.nodes}
        self._execution = Execution(
            "graph",
            name,
            self.config,
            self._limits,
            RunHooks.of(Hooks.of(self.config), hooks),
            self._accepts,
            self.estimate,
        )

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.nodes)} nodes)"

    # --- shape ---

    @property
    def entry(self) -> str:
        """Id of the first node."""
        return self._plan.entry

    @property
    def terminals(self) -> tuple[str, ...]:
        """Ids of the last nodes, in the order of their declaration.

        The output of the run is that of the terminal that it reached. If it reached several, it is that of
        the one that comes first here.
        """
        return self._plan.terminals

    @cached_property
    def definition(self) -> dict[str, JsonValue]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Shape of the graph as plain data.

        A run can be resumed if the parts that it has reached have the same shape, or with `force`.
        """
        return define(self.name, self.nodes, self._plan, self._setup.conversation.mode, self.version)

    def declared_output(self) -> Annotation | None:
        """Return the output type that all terminals declare; `None` if they differ or declare none."""
        declared = [self._setup.declared.get(terminal) for terminal in self.terminals]
        return declared[0] if all(one == declared[0] for one in declared) else None

    def rows_target(self) -> RowTarget[OutputT]:
        """Return the object with which `map` runs this graph for each row. Call `map` instead.

        A row has the inputs of a run, and gets the output of that run.
        """
        return RunRows(
            door=self,
            returns=self.declared_output(),
            steps={node_id: node.step for node_id, node in self.nodes.items()},
            estimate=self.estimate,
            parameters=parameters_of(self._accepts),
        )

    def to_mermaid(self, result: GraphResult[Any] | None = None) -> str:
        """Return the graph as the text of a Mermaid state diagram.

        With a result, the diagram is of the run that gave it, and marks the path that the run took.
        """
        return mermaid(self._drawing(result))

    def to_svg(self, result: GraphResult[Any] | None = None) -> str:
        """Return the graph as an SVG image, as text.

        With a result, the image is of the run that gave it, and marks the path that the run took.
        """
        return svg(self._drawing(result))

    def _drawing(self, result: GraphResult[Any] | None) -> Drawing:
        from fastroai.store.reading.run_drawing import draw_shape

        return draw_shape(self.definition) if result is None else result.trace.drawing()

    def to_yaml(self) -> str:
        """Return the graph as YAML text, which `from_yaml` reads.

        Left out, and to be given to `from_yaml` again, are the steps, the types of answers, `decider`,
        `config`, `accepts` and `version`. Each node names its step by the id of the node.

        Raises:
            ConfigurationError: YAML cannot express a setting: a `budget` that is a spend limit or has more
                than `usd`, `tokens`, `requests` and `ms`; a `conversation` with more options than its mode;
                or a function among the `reducers`.
            MissingExtraError: PyYAML is not installed.
        """
        from fastroai.graphs.document import dump_graph_yaml  # as slow to load as `yaml`

        conversation, budget = self._setup.conversation, self._budget
        if conversation != GraphConversation(conversation.mode):
            raise ConfigurationError("conversation", conversation, "'continuous' or 'isolated' for YAML")
        if budget is not None and not isinstance(budget, Budget):
            raise ConfigurationError("budget", budget, "one Budget, and no other limit, for YAML")
        reducers = self._plan.reducers
        if not all(isinstance(how, str) for how in reducers.values()):
            raise ConfigurationError("reducers", reducers, "built-in reducers, by name, for YAML")
        return dump_graph_yaml(
            {
                "name": self.name,
                "goal": self.goal,
                "nodes": self.nodes,
                "edges": self.edges,
                "entry": self.entry,
                "terminals": self.terminals,
                "pause_nodes": sorted(self._plan.pauses),
                "max_steps": self._plan.max_steps,
                "on_branch_failure": self._plan.on_branch_failure,
                "on_conflict": self._plan.on_conflict,
                "reducers": reducers or None,
                "branch_timeout": self._setup.branch_timeout,
                "max_concurrency": self._max_concurrency,
                "budget": budget,
                "conversation": conversation.mode,
            }
        )

    @classmethod
    def from_yaml(
        cls,
        source: str | Path,
        *,
        nodes: Mapping[str, NodeLike[DepsT]],
        decider: AgentLike[Any] | None = None,
        config: PipelineConfig | None = None,
        accepts: type[InputT] | Accepts | None = None,
        version: str | None = None,
    ) -> Graph[DepsT, InputT, Any]:
        """Make a graph from a YAML document. `nodes` has the steps that the document names.

        `source` is the text, or the `Path` of a file; a string is never read as a path. A node of the
        document names its step with `step`; by default, the name is the id of the node. A value of `nodes`
        can be a `Node`: settings in the document replace its settings. The other arguments are settings that
        a document cannot express.

        Raises:
            GraphValidationError: the document is not YAML, or its graph cannot run. The error has the lines
                and columns of the problems.
            ConfigurationError: `source` or another argument is invalid.
            OSError: the file cannot be read.
            MissingExtraError: PyYAML is not installed.
        """
        from fastroai.graphs.document import load_graph_yaml  # builds schemas, which takes half a second

        document = load_graph_yaml(source, nodes=nodes)
        with document.located():
            return cls(**document.arguments, decider=decider, config=config, accepts=accepts, version=version)

    # --- running ---

    @resuming
    @takes_options(ResumeOptions, defaults=DEFAULTS)
    async def resume(
        self,
        run_id: str,
        *,
        input: object = NOT_GIVEN,
        node: str | None = None,
        deps: DepsT = None,  # type: ignore[assignment]
        **options: Unpack[ResumeOptions],
    ) -> GraphResult[OutputT]:
        """Continue a run that was interrupted, has failed, was cancelled, or is paused.

        Nodes that have finished do not run again, branches included, and responses and tool results that are
        on record are not paid for again. Budgets, usage, retries and conversations continue from where they
        were. A run that has finished is only read, and its result is returned. As with `run`, a failure of a
        node does not raise: the result says how the run ended.

        Args:
            run_id: Id of the run.
            inputs: New values for some inputs. They are written to the memory of the run, over the values
                that nodes wrote there. A branch of a fork that is open keeps the values that it wrote itself.
            input: The answer to the question of a pause node, which becomes its output. Each
                question takes one answer.
            node: The pause node whose question is answered; by default the one that asked first.
            answers: Answers to questions that steps ask with `ctx.ask`, by their ids, as with `Inbox.answer`.
            store: The store that has the run; by default that of the config.
            deps: As in `run`; they are not stored.
            tracer: As in `run`.
            context: As in `run`; it is not stored.
            force: Continue although the graph has changed, and take the run from the process that has it,
                even if that process still works on it. Use it only if you know that the other process hangs.
            on_changed: What to do if the instructions, the model or the like of a call on record have
                changed: `"ask"` asks the model again, `"keep"` uses the answer on record, and `"fail"` makes
                the node fail with `CallChangedError`, before anything is sent. By default, what the config
                says, which is `"ask"` unless it is set.
            on_busy: What to do if a process has the run: `"reject"`, the default, raises `RunInProgress`;
                `"enqueue"` waits until the run has ended or paused; `"interrupt"` cancels it there first.
            busy_timeout: Seconds for which `on_busy` waits, by default 60.
            reserve: `"quote"` continues only if every limit can pay for the estimate of the run, less the
                cost so far, as in `run`.
            budget: Limits on the spending of the run, in place of those that `run` was given; by default, the
                run keeps these. Earlier spending counts.
            on_event: Function that is called with the events of the rest of the run.
            progress: Whether to show how far the run is, as in `run`.
            on_progress: Function that is called with a `Progress`, as in `run`.

        Raises:
            ConfigurationError: `input` was given although no question waits, was not given although one
                does, or is not of the type that the node declares; or `node` was given without `input`, or
                does not wait for an answer.
            RunNotFound: the store has no such run.
            RunInProgress: a process has the run, also after the wait that `on_busy` asks for.
            RunStatusConflict: `inputs` were given, and the run has finished, unless `force`.
            RunDefinitionChanged: the graph has changed in parts that the run has reached, or anywhere if the
                run has finished; unless `force`.
            AnswerRejected: one of `answers` is not what its question asks for; nothing is on record.
            QuestionClosed: the run does not wait for one of `answers`; nothing is on record.
            RunCorrupt: its record cannot be read.
            RunFromNewerVersion: its record has the format of a later version of FastroAI.
            RunFromOlderVersion: its record has the format of an early version, which is not read any more.
        """
        return await self._resumption(run_id, deps, options, self._answered(input, node, options))(None)

    resume_sync: GraphResumes[DepsT, GraphResult[OutputT]] = blocking_twin(resume, of="graph")  # pyright: ignore[reportIncompatibleVariableOverride]

    @resuming
    @takes_options(ResumeOptions, defaults=DEFAULTS)
    def resume_stream(
        self,
        run_id: str,
        *,
        input: object = NOT_GIVEN,
        node: str | None = None,
        deps: DepsT = None,  # type: ignore[assignment]
        **options: Unpack[ResumeOptions],
    ) -> GraphStream[OutputT]:
        """Resume a run, as `resume` does, and return a stream: iterate the events of the rest of the run.

        After the iteration, `stream.result` has the `GraphResult`. The arguments are those of `resume`, and
        its errors are raised at the iteration. Events of work that had finished are not repeated: `follow`
        has the facts of the whole run.
        """
        return GraphStream(self._resumption(run_id, deps, options, self._answered(input, node, options)))

    async def questions(self, run_id: str, *, store: RunStoreLike | None = None) -> tuple[Question, ...]:
        """Return the open questions of a paused run to people, in the order in which they were asked.

        These are the questions of pause nodes and of `ctx.ask`. People can answer in any process. The tuple
        is empty if the run does not wait for an answer. `store` is by default that of the config.

        Raises:
            ConfigurationError: there is no store.
            RunNotFound: the store has no such run.
            RunCorrupt: its record cannot be read.
        """
        keeper = self._keeper(needed_store(store, self.config.store))
        return await questions_of_run(keeper.store, await read_header(keeper.store, run_id), keeper.codec)

    def replay(self, trace: RunTrace) -> Divergence | None:
        """Repeat the decisions of a run on its recorded outcomes, and return the first difference, if any.

        `None` means that this graph would have decided in the same way. A `Divergence` has the position in
        the log, and both decisions. No node runs and nothing is sent; the recorded ends of nested pipelines
        and graphs are used.
        Conditions read outputs, so read the trace of a run with a codec with that codec: without it, they
        read encoded outputs, and the replay finds a difference where there is none.

        Raises:
            ConfigurationError: it is the trace of a run of another kind, such as that of a pipeline. (The
                trace of a graph with another name is a difference.)
            RunCorrupt: the inputs on record are not what the graph accepts.
        """
        return first_divergence(self._setup, trace)

    # --- as a step ---

    def as_step(
        self,
        inputs: Callable[[StepContext[DepsT]], Mapping[str, Any]] | None = None,
        *,
        config: StepConfig | None = None,
    ) -> BaseStep[DepsT, OutputT]:
        """Return this graph as a step of a pipeline or of another graph. The step has the graph's output.

        Args:
            inputs: A function of the `StepContext` that returns this graph's inputs. By default, they are
                those of the run around it, and the outputs of the step's direct dependencies under their ids,
                which replace inputs of the same name.
            config: Settings of the step. Set `total_timeout` to limit its time: `timeout` raises
                `ConfigurationError`.

        The spending of the graph is part of the step's. If the graph does not finish, the step fails.
        Questions of the graph's pause nodes belong to the run around it. That run takes their answers with
        `resume(answers=...)` or from the inbox, as for `ctx.ask`.
        """
        return NestedStep(self, inputs, config or StepConfig())  # pyright: ignore[reportArgumentType]

    async def run_inside(self, inputs: Mapping[str, Any], context: StepContext[Any]) -> OutputT:
        """Run the graph inside a step, and return its output. The step of `as_step` calls this.

        `context` is that of the step: the graph gets its `deps` and shared objects, and its spending is part
        of the step's. Unlike `run`, this raises if the graph does not finish.

        Raises:
            StepExecutionError: a node failed.
            BudgetExceeded: a budget stopped it.
            GraphStopped: the run ended in another way without reaching a terminal.
        """
        result = await self._begin(RunRequest(inputs, context.deps, context=context.shared, is_step=True))
        scope_of(context).degraded |= result.quality != "clean"
        if result.ok:
            return result.output  # type: ignore[return-value]  # OutputT may itself include None
        raise result.error or GraphStopped(self.name, result.status, result.reason)

    async def estimate(self, inputs: Mapping[str, Any] | None = None, deps: Any = None) -> Quote:
        """Return a quote of a run, without a request: at least $0, and at most the budget of the graph.

        How often each node runs is not known in advance, so `inputs` and `deps` make no difference. Without a
        budget in US dollars, the quote has no upper limit: `upper_usd` is `None`.
        """
        quote = Quote.unknown("a graph, whose nodes run as often as its edges say; give it a budget")
        return quote.within(*(self._limits or NO_LIMITS).budgets)

    estimate_sync = blocking(estimate, of="graph")

    # --- parts ---

    async def _execute(self, request: RunRequest[DepsT]) -> GraphResult[OutputT]:
        execution = self._execution
        scope = execution.scope(request)
        run: GraphRun | None = None
        try:
            async with AsyncExitStack() as stack:
                opened = await execution.open(stack, request, scope, self.definition)
                if self._plan.pauses and opened.kept is None:
                    nodes = ", ".join(map(repr, self._plan.pauses))
                    logger.warning(_NOT_RESUMABLE, scope.run_id, nodes)
                run = GraphRun(self._setup, opened, request)
                finish = await execution.perform(opened, run.runner, run.decisions)
                if finish.raised is not None:
                    raise finish.raised
        except BaseException as error:
            if run is None:
                raise
            attach_trace(error, run.log)  # pyright: ignore[reportArgumentType]
            last, ending = run.runner.finish, run.machine.ending
            if last is None or error is not last.raised:
                if not isinstance(error, BudgetExceeded | TimeLimitExceeded):
                    raise
                ending = "budget_exceeded" if isinstance(error, BudgetExceeded) else "failed"
                last = how_it_ended(error)
            await execution.tell_end(run.runner, error)
            assert ending is not None
            return run.result(ending, last, error if isinstance(error, Exception) else None)
        ending = run.machine.ending
        assert ending is not None
        run.ask_around()
        run.opened.halt_around(finish)
        return run.result(ending, finish, None)

    def _answered(self, answer: object, node: str | None, options: ResumeOptions) -> AlsoOnRecord:
        """Return how a resume puts answers to questions on record."""
        codec, answers, force = self.config.codec, options.get("answers"), options.get("force", False)
        return lambda recorded, inputs, found: [
            *answers_to(recorded, answers, found.now, codec=codec),
            *answer_entry(
                self._setup,
                recorded,
                inputs,
                answer,
                node,
                codec=codec,
                forgiving=force,
                status=found.header.status,
            ),
        ]

    def _keeper(self, store: RunStore) -> RunKeeper:
        return RunKeeper(
            definition=self.definition,
            input_types=self._setup.input_types,
            output_types=self._setup.declared,
            check_output=lambda node, output: writes_of(self._plan, node, output, {}),
            needed=needed_by_graph,
            store=store,
            durability=self.config.durability,
            on_changed=self.config.on_changed,
            codec=self.config.codec,
            terms=self.config.lease_terms,
            kind="graph",
        )
