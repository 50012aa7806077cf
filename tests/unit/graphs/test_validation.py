from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent

from fastroai import BaseStep, FastroAgent, PipelineConfig, StepConfig, StepContext, step
from fastroai.contracts.accepted import Accepted
from fastroai.expressions import Expression
from fastroai.graphs.errors import GraphValidationError
from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.node import Node, nodes_of
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.graphs.shape.validation import build_plan


@step
async def work(ctx: StepContext): ...  # type: ignore[no-untyped-def]


class Verdict(BaseModel):
    category: str
    confidence: float


@step
async def classify(ctx: StepContext) -> Verdict: ...


def built(nodes: str | Mapping[str, Any], edges: Any, **options: Any) -> GraphPlan:
    by_id = dict.fromkeys(nodes.split(), work) if isinstance(nodes, str) else nodes
    return build_plan("g", nodes_of(by_id), edges, **options)


def problems(nodes: str | Mapping[str, Any], edges: Any = (), **options: Any) -> list[str]:
    with pytest.raises(GraphValidationError) as caught:
        built(nodes, edges, **options)
    return [problem.message for problem in caught.value.problems]


def problem(nodes: str | Mapping[str, Any], edges: Any = (), **options: Any) -> str:
    (only,) = problems(nodes, edges, **options)
    return only


def when(condition: Any, source: str = "a", target: str = "b") -> Edge:
    return Edge(source, target, "conditional", condition)


# --- what is built ---


def test_a_plan_has_what_the_machine_needs() -> None:
    edges = [Edge("a", "b", "always"), when("x > 1", "a", "c"), Edge("b", "c", "on_failure")]
    nodes = {"a": Node(work, writes=["x"]), "b": Node(work, reads=["x"], max_visits=2), "c": work}
    plan = built(
        nodes, edges, terminals=["c", "b", "c"][:1], pause_nodes={"c"}, max_steps=7, max_concurrency=3
    )
    assert (tuple(plan.edges), plan.entry, plan.terminals, plan.pauses) == (
        ("a", "b", "c"),
        "a",
        ("c",),
        {"c"},
    )
    assert plan.edges == {"a": tuple(edges[:2]), "b": (edges[2],), "c": ()}
    assert plan.conditions == {edges[1]: Expression("x > 1")}
    assert (plan.reads, plan.writes, plan.max_visits) == ({"b": {"x"}}, {"a": ("x",)}, {"b": 2})
    assert (plan.max_steps, plan.max_concurrency) == (7, 3)
    assert (plan.on_branch_failure, plan.on_conflict) == ("fail_all", "last_wins")


def test_the_entry_and_the_terminals_are_what_the_edges_say() -> None:
    plan = built("z a m b", [Edge("m", "z"), Edge("m", "a"), Edge("a", "b")])
    assert (plan.entry, plan.terminals) == ("m", ("z", "b"))


def test_terminals_are_in_the_order_in_which_they_were_declared() -> None:
    assert built("a b c", [Edge("a", "b"), Edge("a", "c")], terminals=["c", "b", "c"]).terminals == ("c", "b")


def test_one_node_is_a_graph() -> None:
    plan = built("a", [])
    assert (plan.entry, plan.terminals) == ("a", ("a",))


def test_five_thousand_nodes_in_a_row_are_a_graph() -> None:
    names = [f"n{number}" for number in range(5_000)]
    plan = built(" ".join(names), [Edge(*pair) for pair in itertools.pairwise(names)])
    assert plan.terminals == ("n4999",)


# --- all at once, and where ---


def test_every_problem_is_in_one_error() -> None:
    with pytest.raises(GraphValidationError) as caught:
        built("a b", [Edge("a", "bb"), Edge("a", "b", fallback=True)], max_steps=0, terminals=["c"])
    assert str(caught.value) == (
        "graph 'g' has 4 problems:\n"
        "  - max_steps=0: expected a whole number, 1 or more\n"
        "  - edge 'a' -> 'bb' has the target 'bb', which is not a node. Did you mean 'b'?\n"
        "  - terminals names 'c', which is not a node.\n"
        "  - edge 'a' -> 'b' has fallback=True, which only edges with when='llm_decide' have"
    )
    assert [problem.about for problem in caught.value.problems] == [
        ("max_steps",),
        ("edges", 0, "target"),
        ("terminals", 0),
        ("edges", 1, "fallback"),
    ]


# --- names ---


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"entry": "clasify"}, "entry names 'clasify', which is not a node. Did you mean 'classify'?"),
        ({"terminals": ["repply"]}, "terminals names 'repply', which is not a node. Did you mean 'reply'?"),
        ({"pause_nodes": ["asks"]}, "pause_nodes names 'asks', which is not a node."),
        ({"terminals": "reply"}, "terminals='reply': expected a list of node ids"),
        ({"pause_nodes": 5}, "pause_nodes=5: expected a list of node ids"),
        ({"entry": 5}, "entry names 5, which is not a node."),
        ({"terminals": [["reply"]]}, "terminals names ['reply'], which is not a node."),
    ],
)
def test_lists_name_nodes(options: dict[str, Any], expected: str) -> None:
    assert problem("classify reply", [Edge("classify", "reply")], **options) == expected


@pytest.mark.parametrize(
    ("edge", "expected"),
    [
        (Edge("clasify", "reply"), "the source 'clasify', which is not a node. Did you mean 'classify'?"),
        (Edge("classify", "x"), "the target 'x', which is not a node."),
        (Edge(["classify"], "reply", "conditional", "x"), "the source ['classify'], which is not a node."),  # type: ignore[arg-type]
        (
            Edge("classify", "reply", "on_sucess"),
            "when='on_sucess': expected one of 'always', 'on_success', ",
        ),  # type: ignore[arg-type]
        (Edge("classify", "reply", ["always"]), "when=['always']: expected one of"),  # type: ignore[arg-type]
        (("classify", "reply"), "is a tuple; expected an Edge(source, target)"),
    ],
)
def test_edges_join_nodes(edge: Any, expected: str) -> None:
    assert expected in problem("classify reply", [edge])


def test_an_unknown_word_has_the_nearest_one() -> None:
    assert problem("a b", [Edge("a", "b", "on_sucess")]).endswith("Did you mean 'on_success'?")  # type: ignore[arg-type]


def test_edges_are_a_list() -> None:
    assert problem("a", Edge("a", "a")) == "edges are a Edge; expected a list of Edge(...)"


@pytest.mark.parametrize("node_id", ["", 5, None, "\ud800"])
def test_ids_are_non_empty_strings(node_id: Any) -> None:
    assert problems({node_id: work, "a": work}, [Edge("a", "bb")])[0] == (
        f"node id {node_id!r} is not a name; ids are non-empty strings of valid Unicode"
    )


def test_a_graph_has_nodes() -> None:
    assert problem({}) == "it has no nodes; give at least one: nodes={'name': step}"


# --- nodes ---


class Work(BaseStep[Any, str]):
    async def execute(self, context: StepContext) -> str: ...


def test_a_node_is_a_step() -> None:
    assert (
        problem({"a": FastroAgent("test")})
        == "node 'a' is not a step but a FastroAgent; use agent.as_step(prompt)"
    )
    assert problem({"a": Agent("test")}) == (
        "node 'a' is not a step but a Agent; use FastroAgent(agent=agent).as_step(prompt)"
    )
    assert problem({"a": Work}) == "node 'a' is not a step but the class Work; give an instance: Work()"
    assert problem({"a": str.upper}).endswith("a method_descriptor; decorate the function with @step")
    assert problem({"a": Node(Node(work))}) == "node 'a' is not a step but a Node; give its step"  # type: ignore[arg-type]
    assert problem({"a": 5}).startswith("node 'a' is not a step but a int; give a BaseStep, a @step function")


def test_a_step_has_a_config_of_a_step() -> None:
    odd = Work()
    odd.config = PipelineConfig()  # type: ignore[assignment]
    assert problem({"a": odd}) == "node 'a' has a config that is a PipelineConfig; expected a StepConfig"


def test_edges_say_what_a_failure_does() -> None:
    lenient, strict = Work(), Work()
    lenient.config, strict.config = StepConfig(on_error="continue"), StepConfig(on_error="fail")
    told = "in a graph, edges say what a failure does: Edge(..., when='on_failure'). Leave on_error out"
    assert problem({"a": lenient}) == f"node 'a' sets on_error='continue'; {told}"
    assert problem({"a": strict}) == f"node 'a' sets on_error='fail'; {told}"
    assert problem("a", config=PipelineConfig(on_error="fail")) == f"config sets on_error='fail'; {told}"
    assert [*built("a", [], config=PipelineConfig(retries=1)).edges] == ["a"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"reads": "ticket"}, "node 'a' has reads='ticket'; expected a list of names"),
        ({"writes": ["x", ""]}, "node 'a' has writes=('x', ''); expected a list of names"),
        ({"reads": ["x", "y", "x"]}, "node 'a' has 'x' in reads more than once"),
        ({"writes": ["x", "x", "x"]}, "node 'a' has 'x' in writes more than once"),
        ({"max_visits": 0}, "node 'a' has max_visits=0: expected a whole number, 1 or more"),
        ({"max_visits": True}, "node 'a' has max_visits=True: expected a whole number, 1 or more"),
        ({"focus": 5}, "node 'a' has the focus 5; expected a text"),
        ({"answer_type": bool}, "node 'a' has an answer_type but asks no question; name it in pause_nodes"),
    ],
)
def test_options_of_nodes_are_checked(options: dict[str, Any], expected: str) -> None:
    assert problem({"a": Node(work, **options)}) == expected


@pytest.mark.parametrize("answer", ["bool", 5])
def test_an_answer_is_a_type(answer: Any) -> None:
    assert problem({"a": Node(work, answer_type=answer)}, pause_nodes=["a"]) == (
        f"node 'a' has the answer_type {answer!r}; expected a type that pydantic can check"
    )
    assert built({"a": Node(work, answer_type=bool | None)}, [], pause_nodes=["a"]).pauses == {"a"}


# --- options ---


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_steps": 0}, "max_steps=0: expected a whole number, 1 or more"),
        ({"max_concurrency": 0}, "max_concurrency=0: expected a whole number, 1 or more"),
        ({"branch_timeout": 0}, "branch_timeout=0: expected seconds, more than zero and finite, or None"),
        ({"on_branch_failure": "fail-all"}, "Did you mean 'fail_all'?"),
        ({"on_conflict": "last"}, "on_conflict='last': expected one of 'last_wins', 'first_wins', 'error'."),
        ({"on_conflict": ["error"]}, "on_conflict=['error']: expected one of"),
        ({"reducers": ["k"]}, "reducers=['k']: expected a mapping of keys to reducers"),
        ({"reducers": {"": "add"}}, "reducers has the key ''; expected a non-empty text"),
        (
            {"reducers": {"k": "appendd"}},
            "the reducer of 'k' is 'appendd'; expected a function of two values, not async",
        ),
        (
            {"reducers": {"k": "appendd"}},
            "'merge', 'add', 'last_wins', 'first_wins', 'error'. Did you mean 'append'?",
        ),
        ({"reducers": {"k": asyncio.sleep}}, "expected a function of two values, not async"),
        ({"conversation": "isolate"}, "'continuous', 'isolated'. Did you mean 'isolated'?"),
    ],
)
def test_options_of_graphs_are_checked(options: dict[str, Any], expected: str) -> None:
    assert expected in problem("a", **options)


def test_a_reducer_of_a_key_that_no_node_writes_is_refused_where_all_say_what_they_write() -> None:
    nodes = {"a": Node(work, writes=["notes"])}
    assert problem(nodes, reducers={"note": "add"}) == (
        "reducers names 'note', which no node writes. Did you mean 'notes'?"
    )
    assert built("a", [], reducers={"note": "add"}).reducers == {"note": "add"}, "it may write any key"


def test_a_conversation_that_is_no_word_is_not_checked_here() -> None:
    assert [*built("a", [], conversation=object()).edges] == ["a"]


# --- where a run begins and ends ---


def test_the_entry_is_said_where_it_could_be_several() -> None:
    edges = [Edge("a", "c"), Edge("b", "c")]
    assert problem("a b c", edges) == "'a', 'b' have no incoming edge; say where it begins: entry='...'"


def test_the_entry_is_said_where_every_node_comes_after_another() -> None:
    looping = [Edge("a", "b"), Edge("b", "a"), Edge("a", "c")]
    assert problem("a b c", looping) == "every node has an incoming edge; say where it begins: entry='...'"
    assert built("a b c", looping, entry="a").entry == "a"


def test_every_node_can_be_reached() -> None:
    edges = [Edge("a", "b"), Edge("c", "d"), Edge("d", "b")]
    assert (
        problem("a b c d", edges, entry="a")
        == "'c', 'd' cannot be reached from the entry 'a'; add an edge to it"
    )


def test_a_terminal_has_no_outgoing_edges() -> None:
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("b", "c", "on_failure")]
    assert problem("a b c", edges, terminals=["b", "c"]) == (
        "terminal 'b' has edges to 'c'; a terminal has no outgoing edges"
    )


def test_a_graph_has_a_terminal() -> None:
    told = "it has no terminal; a run ends in a node without outgoing edges: add one"
    assert problem("a b", [Edge("a", "b"), Edge("b", "a")], entry="a") == told
    assert problem("a b", [Edge("a", "b")], terminals=[]) == told


def test_a_terminal_can_be_reached_from_every_node() -> None:
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("c", "b"), Edge("a", "d")]
    told = "no terminal can be reached from 'b', 'c'; add edges, or say terminals=[...]"
    assert problem("a b c d", edges) == told
    assert problem("a b d", [Edge("a", "b"), Edge("a", "d")], terminals=["d"]).startswith(
        "no terminal can be reached from 'b'"
    )


def test_long_lists_of_nodes_are_cut() -> None:
    names = " ".join(f"n{number}" for number in range(12))
    edges = [Edge(f"n{number}", f"n{number}") for number in range(1, 12)]
    found = problems(names, edges, entry="n0", terminals=["n0"])
    assert found[0].startswith(
        "'n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7', 'n8', 'n9', 'n10' and 1 more cannot be"
    )


def test_a_misspelt_name_makes_no_other_problems() -> None:
    assert len(problems("a b c", [Edge("a", "b"), Edge("b", "cc")])) == 1


# --- branches that never converge ---

_LOOP = Edge("spin", "spin", "on_success")


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("on_success", "on_success", True),
        ("on_success", "always", True),
        ("on_success", "conditional", True),
        ("on_success", "llm_decide", True),
        ("always", "always", True),
        ("always", "on_failure", True),
        ("always", "llm_decide", True),
        ("conditional", "llm_decide", True),
        ("on_failure", "on_failure", True),
        ("on_success", "on_failure", False),
        ("always", "conditional", False),
        ("conditional", "conditional", False),
        ("conditional", "on_failure", False),
        ("llm_decide", "llm_decide", False),
        ("llm_decide", "on_failure", False),
    ],
)
def test_under_fail_all_branches_of_a_fork_reach_a_terminal_without_failing(
    first: Any, second: Any, together: bool
) -> None:
    def leaving(target: str, when: Any) -> Edge:
        condition = f"{target} > 1" if when == "conditional" else None
        is_fallback = when == "llm_decide" and (target == "spin" or first != "llm_decide")
        return Edge("a", target, when, condition, is_fallback)

    edges = [leaving("spin", first), leaving("ok", second), _LOOP, Edge("spin", "ok", "on_failure")]
    given: dict[str, Any] = {"entry": "a"}
    if "llm_decide" in (first, second):
        given["decider"] = object()
    if together:
        assert problem("a spin ok", edges, **given) == (
            "a branch from 'a' can go to 'spin', from where only on_failure edges lead to a terminal: as "
            "long as no node fails, the branch never ends, and the others wait for it. Add an edge that is "
            "taken on success and leads to a terminal, or set on_branch_failure='continue_others'"
        )
    else:
        assert built("a spin ok", edges, **given).entry == "a"
    for other in ("wait_all", "continue_others"):
        assert built("a spin ok", edges, **given, on_branch_failure=other).entry == "a"


def test_two_edges_to_one_node_are_no_fork() -> None:
    edges = [
        Edge("a", "spin", "always"),
        Edge("a", "spin", "on_success"),
        _LOOP,
        Edge("spin", "ok", "on_failure"),
    ]
    assert built("a spin ok", edges, entry="a").terminals == ("ok",)


# --- edges that contradict ---


def test_the_same_edge_is_there_once() -> None:
    edges = [
        Edge("a", "b"),
        Edge("a", "b", "on_failure"),
        Edge("a", "b"),
        when("a > 1"),
        when("a > 1"),
        when("a > 2"),
    ]
    assert problems("a b", edges) == [
        "edge 'a' -> 'b' (on_success) is listed more than once; keep one of them",
        "edge 'a' -> 'b' (conditional with the condition 'a > 1') is listed more than once; keep one of them",
    ]


def test_a_decision_has_one_fallback_and_a_decider() -> None:
    decided = [Edge("a", "b", "llm_decide"), Edge("a", "c", "llm_decide")]
    assert problems("a b c", decided) == [
        "none of the llm_decide edges of 'a' is the fallback; set fallback=True on the one to take where the "
        "decider gives no answer",
        "it has llm_decide edges but no decider; give an agent: decider=...",
    ]
    both = [Edge("a", target, "llm_decide", fallback=True) for target in "bc"]
    assert problem("a b c", both, decider=object()) == (
        "edge 'a' -> 'c' is a second fallback of 'a'; set fallback=True on one edge only"
    )
    assert built("a b c", [both[0], decided[1]], decider=object()).entry == "a"


def test_no_node_has_the_name_of_a_decision_whose_place_on_record_would_be_its_own() -> None:
    edges = [Edge("a", "llm_decide(a)", "llm_decide"), Edge("a", "b", "llm_decide", fallback=True)]
    nodes = dict.fromkeys(("a", "b", "llm_decide(a)"), work)
    assert problem(nodes, edges, decider=object()) == (
        "node 'llm_decide(a)' has the name of the decision after 'a'; give it another id"
    )
    assert built({**nodes, "a": work}, [Edge("a", "llm_decide(a)"), Edge("a", "b")]).entry == "a"


# --- conditions ---


def test_conditions_go_with_conditional_edges() -> None:
    assert problem("a b", [Edge("a", "b", "on_success", "x > 1")]) == (
        "edge 'a' -> 'b' has a condition; set when='conditional'"
    )
    assert problem("a b", [Edge("a", "b", "conditional")]) == (
        "edge 'a' -> 'b' has when='conditional' and no condition; give it: condition='...'"
    )


def test_a_condition_parses() -> None:
    assert problem("a b", [when("x >")]).startswith(
        "the condition of edge 'a' -> 'b' is not valid: expression 'x >': column "
    )
    assert problem("a b", [when(5)]).startswith(
        "the condition of edge 'a' -> 'b' is not valid: expression '5': an expression is text"
    )
    assert len(problems("a b", [when("x >", "q")])) == 2


def test_a_condition_names_fields_of_the_output_and_what_is_in_memory() -> None:
    nodes = {"a": classify, "b": Node(work, ["seen"], ["note"]), "c": work, "d": Node(work, writes=["other"])}
    edges = [Edge("a", "c"), Edge("c", "d"), Edge("d", "b")]
    for name in ("category", "confidence", "seen", "note", "c", "a", "other", "ticket"):
        plan = built(nodes, [*edges, when(f"{name} == 1")], accepts=Accepted({"ticket": str}))
        assert len(plan.conditions) == 1
    assert problems(nodes, [*edges, when("confidnce > 0.8 and categry in ['x']")]) == [
        "the condition of edge 'a' -> 'b' names 'categry', which no node writes. Did you mean 'category'?",
        "the condition of edge 'a' -> 'b' names 'confidnce', which no node writes. "
        "Did you mean 'confidence'?",
    ]
    assert problem(nodes, [*edges, when("zzz")]).endswith(
        "names 'zzz', which no node writes. Put it in writes= of the node that gives it, or in accepts= "
        "if it is an input"
    )
    assert "'d'" in problem(nodes, [*edges, when("d == 1")])  # it writes under another name


def test_a_condition_can_name_anything_where_the_output_is_not_known() -> None:
    assert built({"a": work, "b": work}, [when("anything")]).entry == "a"
    assert "names 'anything'" in problem({"a": Node(work, writes=["x"]), "b": work}, [when("anything")])


def test_what_a_person_answers_is_the_output_of_a_pause_node() -> None:
    edges = [when("approved")]
    assert "names 'approved'" in problem({"a": classify, "b": work}, edges)
    assert built({"a": classify, "b": work}, edges, pause_nodes=["a"]).pauses == {"a"}

    @dataclass
    class Answer:
        approved: bool

    asking = {"a": Node(classify, answer_type=Answer), "b": work}
    assert built(asking, edges, pause_nodes=["a"]).pauses == {"a"}
    assert "names 'category'" in problem(asking, [when("category")], pause_nodes=["a"])


def test_conditions_of_what_is_no_step_are_parsed() -> None:
    assert len(problems({"a": 5, "b": Node(work, reads="x")}, [when("x"), when("y >", "b", "a")])) > 2  # type: ignore[arg-type]


# --- what is sent ---


def sends(source: str = "a", target: str = "b") -> Edge:
    return Edge(source, target, "send")


def test_a_plan_knows_who_sends_where() -> None:
    plan = built("a b c d", [sends(), sends(target="c"), Edge("b", "d"), Edge("c", "d")])
    assert plan.sending == {"a": ("b", "c")}


def test_a_pause_node_sends_nothing() -> None:
    told = problem("a b", [sends()], pause_nodes=["a"])
    assert told == "edge 'a' -> 'b' sends, and 'a' is a pause node, whose output is an answer"


def test_a_node_has_not_the_name_of_a_branch_of_what_is_sent() -> None:
    told = problem(
        dict.fromkeys(["a", "b", "b[0]", "b[x]"], work), [sends(), Edge("b", "b[0]"), Edge("b", "b[x]")]
    )
    assert told == "node 'b[0]' has the name that a branch of the sends to 'b' would get; give it another id"


def test_what_is_sent_has_to_come_to_an_end_without_failing() -> None:
    edges = [sends(), Edge("b", "c", "on_failure"), Edge("b", "b")]
    assert "a branch from 'a' can go to 'b'" in problem("a b c", edges, entry="a")


def test_a_condition_may_name_what_is_sent_where_a_node_says_that_it_reads_it() -> None:
    nodes = {"a": work, "b": Node(classify, writes=["category"]), "c": work}
    edges = [sends(), when("number > 1", "b", "c")]
    assert problem(nodes, edges).endswith("or in reads= of the node that it is sent to")
    assert built({**nodes, "b": Node(classify, reads=["number"], writes=["category"])}, edges)
