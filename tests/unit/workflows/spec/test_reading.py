"""Everything that a spec can get wrong, with the place of each problem. `«` marks these places."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastroai.errors import ConfigurationError
from fastroai.workflows.errors import WorkflowProblem, WorkflowValidationError
from fastroai.workflows.spec.document import WorkflowSpec
from fastroai.workflows.spec.limits import MAX_FLOW_STEPS, MAX_NESTING, MAX_STEPS
from fastroai.workflows.spec.reading import load_spec

HEAD = """\
version: "0.2"
contracts:
  Out:
    ok: {type: boolean}
    score: {type: number}
    items: {type: array}
    meta: {type: object, required: false}
functions:
  work: {mode: infer, intent: Do the work, output: Out}
  count: {mode: compute, intent: Count, input: {n: {type: integer}}, output: Out}
  review: {mode: gate, timeout: 60}
flows:
  main:
    input: {topic: {type: string}, limit: {type: integer, default: 3}}
    steps:
"""
GATE = "{id: ask, function: review, on_approve: ~, on_kill: ~"


def found(text: str) -> tuple[WorkflowProblem, ...]:
    with pytest.raises(WorkflowValidationError) as caught:
        load_spec(text)
    return caught.value.problems


def check(marked: str, *messages: str) -> tuple[WorkflowProblem, ...]:
    """Load a spec with marks, and compare its problems with these."""
    places, lines = [], []
    for number, line in enumerate(marked.split("\n"), 1):
        parts = line.split("«")
        lines.append("".join(parts))
        for index in range(1, len(parts)):
            places.append((number, len("".join(parts[:index])) + 1))
    problems = found("\n".join(lines))
    told = [(problem.line, problem.column, problem.message) for problem in problems]
    assert [one[:2] for one in told] == places, told
    assert len(problems) == len(messages), told
    for problem, message in zip(problems, messages, strict=True):
        assert message in problem.message
    return problems


def spec(steps: str) -> WorkflowSpec:
    return load_spec(HEAD + steps)


def check_steps(steps: str, *messages: str) -> tuple[WorkflowProblem, ...]:
    return check(HEAD + steps, *messages)


# --- the document ---


def test_a_spec_is_what_it_says() -> None:
    read = load_spec(
        """\
version: "0.2"
workflow:
  name: build
  description: Build a feature
  input: {topic: {type: string, required: true}, depth: {type: integer, default: 2}}
contracts:
  Out:
    ok: {type: boolean}
    kind: {type: string, values: [bug, feature], description: What it is}
functions:
  work:
    mode: infer
    intent: Do the work
    context: Be brief
    input: {topic: {type: string}}
    output: Out
    ensure: ["result.ok", "file_exists('a.txt') and file_contains('a.txt', result.kind)"]
    retries: 4
    budget: {ms: 1000, usd: 0.5, tokens: 10_000}
    model: openai:gpt-5
  review: {mode: gate, intent: Look at it, timeout: 3600}
flows:
  build:
    input: {topic: {type: string}, depth: {type: integer, default: 2}}
    output: Out
    budget: {usd: "2.00"}
    max_rounds: 3
    steps:
    - id: draft
      function: work
      inputs: {topic: $.input.topic}
      output_schema: {type: object, properties: {ok: {const: true}}}
      max_iterations: 5
      exit_criterion: result.ok
    - id: check
      intent: Check the draft
      agent: claude
      inputs: {draft: $.steps.draft.output, kind: '$.steps.draft.output.kind', strict: true}
      ensure: [result.clean]
      retries: 2
      output_contract: Out
      model: anthropic:claude-sonnet-4-5
      budget: {tokens: 5}
      on_fail: mend
      skip_if: $.input.depth < 2 and steps.draft.output.ok
      skip_reason: It is small
    - id: decide
      function: review
      depends_on: [check]
      on_approve: ~
      on_revise: draft
      on_kill: clean
      policy: $.input.topic
      policy_fallback: flag
    - id: mend
      flow: repair
      next: check
    - {id: clean, intent: Clean up}
  repair:
    steps: [{id: only, intent: Repair it}]
""".replace("[result.clean]", "[result.ok]")
    )
    assert (read.version, read.entry, read.source) == ("0.2", "build", None)
    assert read.workflow is not None
    assert (read.workflow.name, read.workflow.input["depth"].required) == ("build", False)
    work, flow = read.functions["work"], read.flows["build"]
    assert [one.text for one in work.ensure][0] == "result.ok"
    assert (work.attempts, work.context, work.budget and work.budget.tokens) == (4, "Be brief", 10_000)
    draft, checked, decide, mend, clean = flow.steps
    assert [one.kind for one in flow.steps] == ["function", "inline", "gate", "flow", "inline"]
    assert flow.needs == {
        "draft": (),
        "check": ("draft",),
        "decide": ("check",),
        "mend": (),
        "clean": (),
    }
    assert flow.routed_only == {"mend", "clean"}
    assert (draft.intent, draft.attempts, draft.output_contract) == ("Do the work", 4, "Out")
    assert draft.budgets == (work.budget,)
    assert draft.iteration is not None
    assert draft.iteration.max_iterations == 5
    assert (checked.agent, checked.attempts, checked.model) == ("claude", 2, "anthropic:claude-sonnet-4-5")
    assert checked.inputs["strict"] is True
    assert checked.skip_if is not None
    assert checked.skip_if.text == "input.depth < 2 and steps.draft.output.ok"
    assert decide.gate is not None
    assert (decide.gate.on_revise, decide.gate.policy_fallback, decide.gate.timeout) == (
        "draft",
        "flag",
        3600,
    )
    assert (mend.flow, mend.next, clean.output_contract) == ("repair", "check", None)
    assert (flow.max_rounds, str(flow.budget and flow.budget.usd)) == (3, "2.00")


def test_a_spec_of_version_01_has_functions_only() -> None:
    text = HEAD.replace('"0.2"', '"0.1"').replace("  review: {mode: gate, timeout: 60}\n", "")
    text = text.replace("{topic: {type: string}, limit: {type: integer, default: 3}}", "{}")
    assert load_spec(text + "    - {id: a, function: work, inputs: {}}").version == "0.1"
    check(
        text + "    - {id: a, «intent: Do it}\n    «max_rounds: 2\n«workflow: {name: main}\n",
        'version "0.1" does not have intent',
        "does not have max_rounds",
        "does not have workflow",
    )


def test_gates_are_of_version_02() -> None:
    check(
        "version: '0.1'\nfunctions:\n  g: {«mode: gate, «timeout: 3}\n"
        "contracts: {Out: {a: {type: string}}}\nflows: {main: {steps: [{id: a, «intent: b}]}}\n",
        'version "0.1" does not have mode in this form',
        "does not have timeout",
        "does not have intent",
    )


def test_the_version_is_a_text() -> None:
    check(
        "version: «0.2\nflows:\n  main:\n    steps:\n    - {id: a, function: «nope}\n",
        "version is a number, 0.2; expected a text; put it in quotes",
        "function 'nope' does not exist; there is none.",
    )
    problem = check(
        "version: «'0.4'\nflows: {main: {steps: [{id: a, intent: b}]}}\n", "expected one of 0.1, 0.2, 0.3"
    )
    assert problem[0].allowed == ("0.1", "0.2", "0.3")
    assert problem[0].nearest in problem[0].allowed


def test_retries_are_extra_attempts_from_version_0_3_on() -> None:
    text = """version: "{version}"
contracts: {{Out: {{ok: {{type: boolean}}}}}}
functions:
  work: {{mode: infer, intent: Do it, output: Out, retries: 2}}
  usual: {{mode: infer, intent: Do it, output: Out}}
flows:
  main:
    steps:
    - {{id: a, function: work}}
    - {{id: b, function: usual}}
    - {{id: c, intent: Do it, retries: 1}}
    - {{id: d, intent: Do it}}
"""
    attempts = {
        version: [step.attempts for step in load_spec(text.format(version=version)).flows["main"].steps]
        for version in ("0.2", "0.3")
    }
    assert attempts == {"0.2": [2, 3, 1, 1], "0.3": [3, 3, 2, 1]}
    none = "version: '0.3'\nflows: {main: {steps: [{id: a, intent: b, retries: «%s}]}}\n"
    assert load_spec((none % 0).replace("«", "")).flows["main"].steps[0].attempts == 1
    check(none % -1, "retries is -1; expected extra attempts, at least 0")


def test_a_file_is_given_as_a_path(tmp_path: Path) -> None:
    file = tmp_path / "a.stratum.yaml"
    file.write_text(HEAD + "    - {id: a, intent: Do it}\n", encoding="utf-8")
    assert load_spec(file).source == str(file)
    file.write_text("flows: 3\n", encoding="utf-8")
    with pytest.raises(WorkflowValidationError, match="a.stratum.yaml") as caught:
        load_spec(file)
    assert {problem.file for problem in caught.value.problems} == {str(file)}
    assert "give its pathlib.Path" in found(str(file))[0].message
    file.write_bytes(b"\xff")
    with pytest.raises(WorkflowValidationError, match="it is not UTF-8"):
        load_spec(file)
    with pytest.raises(ConfigurationError, match="Path"):
        load_spec(3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        load_spec(tmp_path / "none")


def test_traps_of_yaml_are_told() -> None:
    check("version: «&a '0.2'\n", "the anchor &a is not supported")
    check("version: «*a\n", "the alias *a is not supported")
    check(HEAD + "    - {id: a, intent: b, «id: c}\n", "the key 'id' exists already, in line 16")
    check(HEAD + "    - {id: a, intent: on, inputs: {on: 1, yes: no, «3: x}}\n", "the key 3 is a number")
    check(
        HEAD + "    - {id: a, intent: b, output_schema: " + "{a: " * 25 + "«" + "{a: " * 9 + "\n",
        "too deeply",
    )


def test_values_have_the_right_types() -> None:
    check_steps(
        "    - {id: a, «intent: [b]}\n    - {id: b, intent: c, retries: «two}\n    - «c\n",
        "flows.main.steps[0].intent is a list; expected a text",
        "flows.main.steps[1].retries is a text, 'two'; expected a whole number",
        "flows.main.steps[2] is a text, 'c'; expected a mapping",
    )
    check_steps(
        "    - {id: a, intent: b, skip_if: «1, max_iterations: 2, exit_criterion: «2}\n",
        "flows.main.steps[0].skip_if is a number, 1; expected a text; put it in quotes",
        "flows.main.steps[0].exit_criterion is a number, 2; expected a text",
    )
    check("version: '0.2'\nflows:\n  main: {«steps: }\n", "steps is empty; expected a list")
    check_steps("    - «{intent: Do it}\n", "flows.main.steps[0].id is missing")


def test_unknown_keys_are_told_with_the_nearest_and_the_rest_is_still_looked_at() -> None:
    problem, other = check_steps(
        "    - {id: a, intent: b, «ensre: [x]}\n    - {id: b, function: «wrok}\n",
        "unknown key flows.main.steps[0].ensre; expected id, function",
        "function 'wrok' does not exist; known: work, count, review. Did you mean 'work'?",
    )
    assert (problem.nearest, problem.flow, problem.step) == ("ensure", "main", "a")
    assert (other.nearest, other.allowed, other.step) == ("work", ("work", "count", "review"), "b")


def test_problems_are_told_up_to_a_hundred() -> None:
    problems = found(HEAD + "".join(f"    - {{id: s{n}, function: nope{n}}}\n" for n in range(500)))
    assert len(problems) == 101
    assert any("there can be more problems" in problem.message for problem in problems)


def test_names_are_letters_digits_and_a_few_signs() -> None:
    check_steps(
        "    - {id: «a.b, intent: c}\n    - {id: «'1', intent: c}\n",
        "'a.b' is not a name",
        "'1' is not a name",
    )
    check_steps(f"    - {{id: «{'a' * 201}, intent: c}}\n", "has 201 characters; at most 200")
    check("version: '0.2'\nflows:\n  «a b: {steps: [{id: a, intent: b}]}\n", "'a b' is not a name")


# --- contracts, functions, inputs ---


def test_fields_have_one_of_six_types() -> None:
    text = "version: '0.2'\ncontracts:\n  Out:\n"
    flows = "flows: {main: {steps: [{id: a, intent: b}]}}\n"
    check(text + "    a: {type: «str}\n" + flows, "type is 'str'; expected one of string, number")
    check(text + "    a: «string\n" + flows, "contracts.Out.a is a text, 'string'; expected a mapping")
    check(text + "    «a: {values: [1]}\n" + flows, "contracts.Out.a.type is missing")
    check(text + "    a: {type: integer, values: [1, «'2', 3.0]}\n" + flows, "values[1] is a text, '2'")
    check(text + "    a: {type: integer, «values: []}\n" + flows, "values is an empty list")
    check(text + "    a: {type: integer, «default: 1}\n" + flows, "only inputs have one")


def test_defaults_of_inputs_fit_their_fields() -> None:
    text = "version: '0.2'\nflows:\n  main:\n    input:\n"
    steps = "    steps: [{id: a, intent: b}]\n"
    check(text + "      a: {type: string, default: «3}\n" + steps, "default is a number, 3; expected a value")
    check(text + "      a: {type: string, values: [x, y], default: «z}\n" + steps, "expected one of 'x', 'y'")
    read = load_spec(text + "      a: {type: number, default: 3}\n      b: {type: array}\n" + steps)
    assert [field.required for field in read.flows["main"].input.values()] == [False, True]


def test_functions_say_what_they_do_and_give() -> None:
    text = "version: '0.2'\ncontracts: {Out: {a: {type: string}}}\nfunctions:\n"
    flows = "flows: {main: {steps: [{id: a, intent: b}]}}\n"
    check(text + "  «f: {output: Out, intent: b}\n" + flows, "functions.f.mode is missing")
    check(
        text + "  f: {mode: «infr, intent: a, output: Out}\n" + flows, "expected one of infer, compute, gate"
    )
    check(text + "  «f: {mode: infer, output: Out}\n" + flows, "'f' has no intent")
    check(text + "  «f: {mode: compute, intent: b}\n" + flows, "'f' has no output")
    check(text + "  f: {mode: infer, intent: a, output: «Oot}\n" + flows, "contract 'Oot' does not exist")
    check(text + "  f: {mode: infer, intent: a, output: Out, retries: «0}\n" + flows, "at least 1")
    check(text + "  f: {mode: infer, intent: a, output: Out, «timeout: 3}\n" + flows, "which only gates have")
    check(text + "  f: {mode: infer, intent: a, output: Out, budget: {usd: «-1}}\n" + flows, "budget: usd=")
    check(
        text + "  f: {mode: infer, intent: a, output: Out, «budget: {}}\n" + flows,
        "budget: Budget needs",
    )
    check(text + "  f: {mode: infer, intent: a, output: Out, budget: {ms: «0.5}}\n" + flows, "budget: ms=")
    check(text + "  f: {mode: gate, timeout: «0}\n" + flows, "timeout is 0; expected seconds")
    check(text + "  f: {mode: gate, timeout: «1e12}\n" + flows, "timeout is 1e+12; expected seconds")


def test_gates_have_no_ensure_budget_or_retries() -> None:
    check(
        "version: '0.2'\nfunctions:\n  f: {mode: gate, «ensure: [x], «budget: {usd: 1}, «retries: 2}\n"
        "flows: {main: {steps: [{id: a, intent: b}]}}\n",
        "'f' is a gate, which has no ensure",
        "no budget",
        "no retries",
    )


def test_what_a_gate_has_no_use_for_is_refused_from_version_03_on() -> None:
    marked = (
        "version: '0.3'\nfunctions:\n  f: {mode: gate, «context: x, «output: Out, «model: openai:gpt-5}\n"
        "contracts: {Out: {ok: {type: boolean}}}\nflows: {main: {steps: [{id: a, intent: b}]}}\n"
    )
    check(marked, "'f' is a gate, which has no context: a person decides", "no output", "no model")
    earlier = load_spec(marked.replace("0.3", "0.2").replace("«", ""))
    assert earlier.functions["f"].output is None  # as before


def test_values_are_of_the_types_of_json() -> None:
    text = "version: '0.2'\nflows:\n  main:\n    input:\n"
    steps = "    steps: [{id: a, intent: b}]\n"
    check(text + "      a: {type: integer, default: «true}\n" + steps, "default is a truth value, True")
    check(text + "      a: {type: integer, values: [1], default: «2}\n" + steps, "expected one of 1")
    check(text + "      a: {type: boolean, values: [true], default: «1}\n" + steps, "default is a number, 1")
    assert load_spec(text + "      a: {type: integer, default: 3.0}\n" + steps)


def test_the_inputs_of_the_workflow_are_those_of_its_flow() -> None:
    text = "version: '0.2'\nflows:\n  a: {input: {x: {type: string}}, steps: [{id: s, intent: b}]}\n"
    more = "  b: {steps: [{id: s, intent: b}]}\n"
    assert load_spec(text + "workflow: {name: other, input: {x: {type: string}}}\n").entry == "a"
    check(text + more + "workflow: {name: «other}\n", "flow 'other' does not exist; known: a, b")
    for said, message in (
        ("«input: {}", "it lacks x"),
        ("«input: {x: {type: string}, y: {type: string}}", "the flow has no y"),
        ("«input: {x: {type: integer}}", "'x' is of type integer, and there string"),
    ):
        check(text + more + f"workflow: {{name: a, {said}}}\n", message)


@pytest.mark.parametrize("name", ["a b", "a\\u202e", "a\\n", "1a", "a.b", ""])
def test_the_name_of_the_workflow_is_a_name_like_others(name: str) -> None:
    text = "version: '0.2'\nflows: {a: {steps: [{id: s, intent: b}]}}\n"
    check(f'{text}workflow: {{name: «"{name}"}}\n', "is not a name; expected letters, digits, '_' and '-'")
    long = "a" * 201
    check(f"{text}workflow: {{name: «{long}}}\n", "has 201 characters; at most 200 are allowed")
    assert load_spec(f"{text}workflow: {{name: my-workflow_2}}\n").entry == "a"


def test_the_workflow_says_which_inputs_may_be_left_out() -> None:
    read = load_spec(
        "version: '0.2'\nworkflow: {name: a, input: {x: {type: integer, default: 2}, y: {type: string}}}\n"
        "flows:\n  a:\n    input: {x: {type: integer}, y: {type: string, default: z}}\n"
        "    steps: [{id: s, intent: b}]\n"
    )
    assert [field.default for field in read.flows["a"].input.values()] == [2, "z"]
    assert read.workflow is not None
    assert read.workflow.input == read.flows["a"].input


def test_the_entry_is_the_first_flow_that_no_other_runs() -> None:
    read = load_spec(
        "version: '0.2'\nflows:\n  inner: {steps: [{id: s, intent: b}]}\n"
        "  outer: {steps: [{id: s, flow: inner}]}\n  other: {steps: [{id: s, intent: b}]}\n"
    )
    assert read.entry == "outer"


# --- steps ---


def test_a_step_is_one_of_three() -> None:
    check_steps(
        "    - {id: «a}\n", "step 'a' needs exactly one of function, intent and flow; it has none of them"
    )
    check_steps("    - {id: a, function: work, «intent: b}\n", "it has function and intent")
    check_steps("    - {id: a, intent: «''}\n", "intent is empty")


def test_ids_are_there_once() -> None:
    check_steps(
        "    - {id: a, intent: b}\n    - {id: «a, intent: c}\n",
        "step 'a' exists already, in line 16",
    )


def test_functions_contracts_and_flows_have_to_be_there() -> None:
    check_steps(
        "    - {id: a, flow: «mian}\n", "flow 'mian' does not exist; known: main. Did you mean 'main'?"
    )
    check_steps(
        "    - {id: a, intent: b, output_contract: «Oat}\n", "contract 'Oat' does not exist; known: Out"
    )
    check(
        HEAD.replace("    steps:", "    output: «Nope\n    steps:") + "    - {id: a, intent: b}\n", "contract"
    )


def test_what_belongs_to_the_function_is_not_said_by_the_step() -> None:
    check_steps(
        "    - {id: a, function: work, «ensure: [result.ok], «retries: 2, «model: m, «output_contract: Out,\n"
        "       «budget: {usd: 1}}\n",
        "step 'a' has a function; ensure belongs there",
        "retries belongs there",
        "model belongs there",
        "output_contract belongs there",
        "budget belongs there",
    )


def test_a_sub_flow_has_ensure_and_on_fail_only() -> None:
    inner = "  inner: {output: Out, steps: [{id: s, function: work}]}\n"
    read = load_spec(
        HEAD
        + "    - {id: a, flow: inner, ensure: [result.ok], on_fail: b}\n    - {id: b, intent: c}\n"
        + inner
    )
    assert read.flows["main"].steps[0].output_contract == "Out"
    check_steps(
        "    - {id: a, flow: inner, «agent: x, «retries: 2, «model: m, «budget: {usd: 1}, «max_iterations: 2}"
        "\n" + inner,
        "step 'a' is a sub-flow, whose own steps have agent; it has ensure and on_fail",
        *["sub-flow"] * 4,
    )


def test_gates_say_where_they_lead() -> None:
    before = "    - {id: a, intent: b}\n"
    assert spec(before + f"    - {GATE}}}\n").flows["main"].steps[1].gate is not None
    problems = found(HEAD + before + "    - {id: ask, function: review}\n")
    assert [(one.line, one.column, one.step) for one in problems] == [(17, 12, "ask")] * 2
    assert "'ask' does not say on_approve; expected a step, or null" in problems[0].message
    check_steps(before + f"    - {GATE}, on_revise: «ask}}\n", "leads from 'ask' to itself")
    check_steps(
        f"    - {GATE}, on_revise: «later}}\n    - {{id: later, intent: b}}\n",
        "on_revise leads from 'ask' to 'later', which comes after it; expected an earlier step",
    )
    check_steps(
        before + f"    - {GATE}, on_revise: «aa}}\n", "step 'aa' does not exist; known: a, ask. Did you mean"
    )


def test_gates_have_no_output_no_condition_and_no_iterations() -> None:
    check_steps(
        f"    - {GATE}, «skip_if: 'True', «output_schema: {{}}, «max_iterations: 2, «on_fail: b, «next: b,\n"
        "       «accumulate: items, «agent: claude}\n    - {id: b, intent: c}\n",
        "step 'ask' is a gate, which has no skip_if",
        "no output_schema",
        "no max_iterations",
        "no on_fail: it has on_revise and on_kill",
        "no next: it has on_approve",
        "no accumulate",
        "no agent: a person decides",
    )


def test_a_reason_for_a_skip_needs_a_condition_of_the_skip() -> None:
    check_steps(
        "    - {id: a, function: work, «skip_reason: It is small}\n",
        "step 'a' has skip_reason without skip_if, which it needs",
    )


def test_only_gates_have_policies_and_their_routes() -> None:
    check_steps(
        "    - {id: a, intent: b, «on_approve: b, «policy: skip}\n    - {id: b, intent: c}\n",
        "step 'a' is not a gate, so it has no on_approve",
        "no policy",
    )
    check_steps(f"    - {GATE}, policy: «aks}}\n", "policy is 'aks'; expected one of gate, flag, skip")
    check_steps(f"    - {GATE}, «policy_fallback: flag}}\n", "policy_fallback without policy, which it needs")
    check_steps(f"    - {GATE}, policy: skip, policy_fallback: «fly}}\n", "policy_fallback is 'fly'")
    check_steps(f"    - {GATE}, policy: «$.input.limit}}\n", "policy refers to integer; expected a string")
    check_steps(f"    - {GATE}, policy: «$.input}}\n", "policy is '$.input', which is no reference")


def test_on_fail_needs_what_can_fail() -> None:
    after = "    - {id: mend, intent: c}\n"
    check_steps(
        "    - {id: a, intent: b, «on_fail: mend}\n" + after,
        "step 'a' has on_fail, but nothing that can fail",
    )
    for checked in ("ensure: [result]", "output_schema: {}", "output_contract: Out", "budget: {usd: 1}"):
        assert spec(f"    - {{id: a, intent: b, {checked}, on_fail: mend}}\n" + after)
    inner = "  inner: {steps: [{id: s, intent: x}]}\n"
    check_steps("    - {id: a, flow: inner, «on_fail: mend}\n" + after + inner, "nothing that can fail")
    assert spec(
        "    - {id: a, flow: inner, on_fail: mend}\n" + after + inner.replace("intent: x", "function: work")
    )


def test_routes_lead_to_other_steps() -> None:
    check_steps(
        "    - {id: a, function: work, on_fail: «nope, next: «a}\n",
        "step 'nope' does not exist; known: a.",
        "next leads from 'a' to itself, an endless loop",
    )


def test_iterations_need_each_other() -> None:
    check_steps(
        "    - {id: a, function: work, «exit_criterion: result.ok, «accumulate_key: item.id}\n",
        "step 'a' has exit_criterion without max_iterations, which it needs",
        "accumulate_key without accumulate",
    )
    check_steps("    - {id: a, function: work, «accumulate: items}\n", "accumulate without max_iterations")
    check_steps("    - {id: a, function: work, max_iterations: «0}\n", "at least 1")
    start = "    - {id: a, function: work, max_iterations: 3, "
    check_steps(
        start + "accumulate: «itms}\n", "field 'itms' does not exist; known: ok, score, items, meta. Did"
    )
    check_steps(start + "accumulate: «result.ok}\n", "'ok', which is of type boolean; expected an array")
    check_steps(start + "accumulate: «'result.items[0]'}\n", "expected one field, as in result.name")
    check_steps(
        start + "accumulate: items, accumulate_key: «a or b}\n", "expected one field, as in item.name"
    )
    check_steps(start + "exit_criterion: result.ok and «dry_streak > 2}\n", "there is no 'dry_streak' here")
    read = spec(
        start + "accumulate: result.items, accumulate_key: item.id, exit_criterion: dry_streak > 2}\n"
    )
    iteration = read.flows["main"].steps[0].iteration
    assert iteration is not None
    assert (iteration.accumulate, iteration.accumulate_key) == ("items", "id")
    assert spec("    - {id: a, function: work, max_iterations: 3, exit_criterion: true}\n")


def test_fields_that_a_loop_adds_have_types_of_their_own() -> None:
    loop = "max_iterations: 2, accumulate: items"
    check_steps(
        f"    - {{id: a, function: work, {loop}}}\n"
        "    - {id: b, intent: x, inputs: {n: «$.steps.a.output.accumulated_cuont}}\n",
        "known: ok, score, items, meta, accumulated, accumulated_count. Did you mean 'accumulated_count'?",
    )
    check_steps(
        "    - {id: a, intent: x, max_iterations: 2, accumulate: «items,\n"
        "       output_schema: {properties: {accumulated: {type: string}}}}\n",
        "accumulate adds a field 'accumulated' of type array, but the output declares it as string",
    )
    check_steps(
        f"    - {{id: a, function: work, {loop}, exit_criterion: «result.accumulated_count > 1}}\n",
        "field 'accumulated_count' does not exist",
    )


# --- references and inputs ---


def test_references_that_could_never_have_a_value_are_refused() -> None:
    check_steps(
        "    - {id: a, function: work}\n"
        "    - {id: sure, function: review, on_approve: null, on_kill: null}\n"
        "    - id: b\n      intent: x\n      skip_if: «$.steps.sure.output.decision == 'kill'\n"
        "      inputs:\n        x: «$.steps.sure.output\n        y: «$.steps.a.output.items.name\n"
        "        z: «$.steps.a.output.meta[0]\n",
        "step 'sure' is a gate, which has no output; to run after it, name it in depends_on",
        "$.steps.sure.output: step 'sure' is a gate, which has no output",
        "'items' is of type array, whose parts are items, as in [0]",
        "'meta' is of type object, whose parts are fields, as in .name",
    )


def test_references_name_what_is_there() -> None:
    check_steps(
        "    - id: a\n      intent: b\n      inputs:\n"
        "        x: «$.input.topc\n        y: «$.steps.b.output\n"
        "        z: «$.steps.s-2.output.scre\n        v: «$.steps.s-2.output.ok.deep\n"
        "    - {id: s-2, function: work}\n",
        "$.input.topc: input 'topc' does not exist; known: topic, limit. Did you mean 'topic'?",
        "$.steps.b.output: step 'b' does not exist; known: a, s-2.",
        "$.steps.s-2.output.scre: field 'scre' does not exist; known: ok, score, items, meta. Did you mean",
        "'ok' is of type boolean, which has no parts",
    )
    assert spec(
        "    - {id: a, function: work}\n"
        "    - {id: b, intent: c, inputs: {x: '$.steps.a.output.items[0].z'}}\n"
    )


def test_references_are_well_formed() -> None:
    for wrong in ("$.input", "$.steps.a", "$.steps.a.result.x", "$.other.x", "$.input.a b", "$.input.x["):
        check_steps(f"    - {{id: a, intent: b, inputs: {{x: «'{wrong}'}}}}\n", "which is no reference")
    check_steps(
        "    - {id: a, intent: b, inputs: {x: [1, {y: «$.input.topic}]}}\n",
        "x[1].y is a reference inside a value; a reference must be the whole value of an input",
    )
    read = spec("    - {id: a, intent: b, inputs: {price: $5, text: 'see $.input.topic', none: ~}}\n")
    assert read.flows["main"].steps[0].inputs == {"price": "$5", "text": "see $.input.topic", "none": None}


def test_inputs_are_those_that_the_function_or_flow_takes() -> None:
    check_steps(
        "    - {id: a, function: count, inputs: {n: «'3'}}\n", "input 'n' is a text, '3'; expected a value of"
    )
    check_steps(
        "    - {id: a, function: count, inputs: {n: «$.input.topic}}\n",
        "'n' is of type string; expected integer",
    )
    check_steps(
        "    - {id: a, function: count, inputs: {n: 1, «m: 2}}\n", "there is no input 'm'; count takes n."
    )
    check_steps(
        "    - {id: a, function: count, «inputs: {}}\n", "step 'a' does not give count what it takes: n"
    )
    check_steps("    - {id: «a, function: count}\n", "step 'a' does not give count what it takes: n")
    assert spec("    - {id: a, function: count, inputs: {n: $.input.limit}}\n")
    assert spec("    - {id: a, function: work, inputs: {more: $.input.limit}}\n")
    inner = "  inner: {input: {x: {type: number}}, steps: [{id: s, intent: t}]}\n"
    assert spec("    - {id: a, flow: inner, inputs: {x: $.input.limit}}\n" + inner)
    check_steps("    - {id: a, flow: inner, inputs: {x: «yes}}\n" + inner, "expected a value of type number")


# --- expressions ---


def test_expressions_are_parsed_with_their_places() -> None:
    check_steps("    - {id: a, intent: b, ensure: ['result.ok &«& True']}\n", "for '&&' write 'and'")
    check_steps("    - {id: a, intent: b, ensure: [«'']}\n", "ensure[0] '': it is empty")
    check_steps(
        "    - id: a\n      intent: b\n      ensure:\n      - «|\n        result.ok ==\n", "ensure[0]"
    )
    check_steps("    - {id: a, intent: b, skip_if: «open('x')}\n", "there is no function 'open'")
    check_steps(
        "    - {id: a, intent: b, skip_if: «file_exists('x')}\n", "there is no function 'file_exists'"
    )
    check_steps("    - {id: a, intent: b, ensure: [«file_exists()]}\n", "takes 1 argument, not 0")
    check_steps(
        "    - {id: a, intent: b, ensure: [result.x == «none]}\n", "'none' is not a name of data; write None"
    )
    check_steps("    - {id: a, intent: b, ensure: [«result.__class__]}\n", "belong to Python")


def test_none_is_asked_for_as_in_python() -> None:
    assert spec("    - {id: a, intent: b, ensure: [result.x is not None, result.y is None]}\n")


def test_expressions_name_fields_that_are_there() -> None:
    out = "output_contract: Out"
    check_steps(
        f"    - {{id: a, intent: b, {out},\n"
        "       ensure: ['result.ok and «result.scor > 1', \"len(«result['itms']) > 0\"]}\n",
        "field 'scor' does not exist; known: ok, score, items, meta. Did you mean 'score'?",
        "field 'itms' does not exist",
    )
    check_steps(f"    - {{id: a, intent: b, {out}, ensure: [has(«result.x)]}}\n", "field 'x' does not exist")
    check_steps(
        f"    - {{id: a, intent: b, {out}, ensure: [«result.ok.x]}}\n",
        "'ok' is of type boolean, which has no parts",
    )
    check_steps(
        "    - {id: a, intent: b, ensure: [«steps.a]}\n", "there is no 'steps' here; known: result, input."
    )
    check_steps("    - {id: a, intent: b, ensure: [«input.x]}\n", "field 'x' does not exist; there is none.")
    assert spec(
        f"    - {{id: a, intent: b, {out},\n"
        "       ensure: [result.meta.any, 'all(x.y for x in result.items)', result]}\n"
    )
    assert spec("    - {id: a, intent: b, inputs: {x: 1}, ensure: [result.any.thing == input.x]}\n")
    schema = "output_schema: {type: object, properties: {lint: {type: boolean}}}"
    assert spec(f"    - {{id: a, intent: b, {out}, {schema}, ensure: [result.lint and result.ok]}}\n")


def test_what_a_function_ensures_may_be_in_the_schemas_of_its_steps() -> None:
    head = HEAD.replace("output: Out}", "output: Out, ensure: [result.lint, input.more]}", 1)
    schema = "output_schema: {properties: {lint: {type: boolean}}}"
    assert load_spec(head + f"    - {{id: a, function: work, {schema}, inputs: {{more: 1}}}}\n")
    head = head.replace("[result.lint, input.more]", "[«result.lint, «input.more]")
    check(
        head + "    - {id: a, function: work}\n", "field 'lint' does not exist", "field 'more' does not exist"
    )


def test_skip_if_sees_inputs_and_outputs() -> None:
    before = "    - {id: s-1, function: work}\n"
    read = spec(
        before + "    - {id: b, intent: c, skip_if: \"$.steps.s-1.output.ok and '$.x' != $.input.topic\"}\n"
    )
    step = read.flows["main"].steps[1]
    assert step.skip_if is not None
    assert step.skip_if.text == "steps['s-1'].output.ok and '$.x' != input.topic"
    assert step.skip_if.test({"input": {"topic": "t"}, "steps": {"s-1": {"output": {"ok": True}}}})
    assert read.flows["main"].needs["b"] == ("s-1",)
    check_steps(
        before + "    - {id: b, intent: c, skip_if: «steps.s2.output.ok}\n", "step 's2' does not exist"
    )
    check_steps(
        "    - {id: a, function: work}\n    - {id: b, intent: c, skip_if: «steps.a.ok}\n",
        "expected steps.id.output",
    )
    check_steps(
        "    - {id: a, function: work}\n    - {id: b, intent: c, skip_if: «steps.a.output.okay}\n", "'okay'"
    )
    check_steps(
        "    - {id: b, intent: c, skip_if: «result.ok}\n",
        "there is no 'result' here; known: input, steps.",
    )


# --- order ---


def test_steps_come_after_those_that_they_need_and_else_as_they_are_declared() -> None:
    read = spec(
        "    - {id: d, intent: x, inputs: {v: $.steps.c.output}}\n    - {id: b, intent: x, depends_on: [a]}\n"
        "    - {id: a, intent: x}\n    - {id: c, intent: x}\n"
    )
    assert [one.id for one in read.flows["main"].steps] == ["a", "b", "c", "d"]


def test_steps_in_a_circle_are_named() -> None:
    check_steps(
        "    - {id: «a, intent: x, depends_on: [c]}\n"
        "    - {id: b, intent: x, inputs: {v: $.steps.a.output}}\n"
        "    - {id: c, intent: x, skip_if: steps.b.output}\n    - {id: «d, intent: x, depends_on: [d]}\n",
        "steps need each other in a circle: a → c → b → a; remove",
        "in a circle: d → d",
    )
    check_steps("    - {id: a, intent: x, depends_on: [«b]}\n", "step 'b' does not exist")


def test_flows_that_run_each_other_are_named() -> None:
    flows = "version: '0.2'\nflows:\n  «a: {steps: [{id: s, flow: b}]}\n  b: {steps: [{id: s, flow: c}]}\n"
    check(flows + "  c: {steps: [{id: s, flow: a}]}\n", "flows run each other in a circle: a → b → c → a")


def test_a_flow_that_is_too_large_when_written_out_is_refused_at_once() -> None:
    flows = ["  f0: {steps: [{id: s, intent: x}]}\n"]
    for number in range(1, 20):
        inner = f"{{id: a, flow: f{number - 1}}}, {{id: b, flow: f{number - 1}}}"
        flows.append(f"  {'«' if number == 12 else ''}f{number}: {{steps: [{inner}]}}\n")
    check("version: '0.2'\nflows:\n" + "".join(flows), f"flow 'f12' has more than {MAX_STEPS:,} steps")


def test_flows_are_nested_within_limits() -> None:
    flows = ["  f0: {steps: [{id: s, intent: x}]}\n"]
    for number in range(1, 2 * MAX_NESTING - 1):
        mark = "«" if number == MAX_NESTING else ""
        flows.append(f"  {mark}f{number}: {{steps: [{{id: s, flow: f{number - 1}}}]}}\n")
    check("version: '0.2'\nflows:\n" + "".join(flows), f"more than {MAX_NESTING} levels deep")


def test_a_flow_has_steps_but_not_too_many() -> None:
    check("version: '0.2'\nflows:\n  main: {«steps: []}\n", "flow 'main' has no steps")
    check("version: '0.2'\n«flows: {}\n", "flows is empty")
    check(
        HEAD.replace("    steps:", "    «steps:")
        + "".join(f"    - {{id: s{n}, intent: x}}\n" for n in range(1001)),
        f"flow 'main' has 1,001 steps; at most {MAX_FLOW_STEPS:,}",
    )
