"""Questions of pause nodes to people, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from fastroai.contracts import adapter_of
from fastroai.errors import ConfigurationError, ContractViolation, nearest_hint
from fastroai.graphs.machine.events import Visit
from fastroai.graphs.machine.replay import replayed
from fastroai.graphs.machine.writes import writes_of
from fastroai.graphs.setup import GraphSetup
from fastroai.records import NotGiven
from fastroai.runtime.facts import AnswerGiven, QuestionAsked, RunResumed, RunStatus
from fastroai.store.record.memo import Memo
from fastroai.store.record.payloads import PayloadCodec, seal
from fastroai.store.record.values import value_to_json


def question_as_json(setup: GraphSetup, asked: QuestionAsked) -> QuestionAsked:
    """Return the question of a pause node as JSON, for people outside of its graph."""
    declared, what = setup.declared.get(asked.step_id), f"the question of node {asked.step_id!r}"
    return replace(asked, question=value_to_json(asked.question, declared, what))


def answer_entry(
    setup: GraphSetup,
    recorded: Memo,
    inputs: Mapping[str, object],
    answer: object,
    node: str | None,
    *,
    codec: PayloadCodec | None,
    forgiving: bool,
    status: RunStatus,
) -> Sequence[AnswerGiven]:
    """Check the answer that a run is resumed with, and return it as an entry of the log.

    Return nothing if no answer is given and none is needed. A run whose process died after the question was
    asked needs no answer: it goes on, and ends as `paused`.

    Raises:
        ConfigurationError: no question waits for the answer, it does not fit the question, lacks a value that
            the node writes, or is missing.
        ValueNotStorable: the answer cannot be stored.
        RunCorrupt: the record of the run cannot be read.
    """
    run_id = recorded.opened.run_id
    asks = any(isinstance(entry, QuestionAsked) for entry in recorded.entries)
    if isinstance(answer, NotGiven) and node is None and not asks:
        return ()  # most runs have no question, so that their record need not be replayed
    replay = replayed(setup, inputs, recorded, recorded.opened.part, codec, forgiving=forgiving)
    replay.resumed(RunResumed(part=recorded.opened.part))
    asked = replay.machine.questions
    if isinstance(answer, NotGiven):
        if node is not None:
            raise ConfigurationError("node", node, "input= (the answer) too")
        if asked and replay.finish is not None and status == "paused":
            raise ConfigurationError(
                "input", ..., f"the answer that node {next(iter(asked)).node!r} of run {run_id!r} waits for"
            )
        return ()
    visit = _asked(run_id, list(asked), answer, node)
    checked = _checked(setup, visit, answer)
    try:
        writes_of(setup.plan, visit.node, checked, {})
    except ContractViolation as error:
        expected = f"values that node {visit.node!r} can write: {error}"
        raise ConfigurationError("input", answer, expected) from error
    stored = value_to_json(checked, setup.answers.get(visit.node), f"the answer to node {visit.node!r}")
    return (AnswerGiven(visit.node, seal(stored, codec), visit=visit.number, id=asked[visit].id),)


def _asked(run_id: str, asked: Sequence[Visit], answer: object, node: str | None) -> Visit:
    if not asked:
        raise ConfigurationError("input", answer, f"no value: run {run_id!r} does not wait for an answer")
    if node is None:
        return asked[0]
    found = next((visit for visit in asked if visit.node == node), None)
    if found is None:
        names = [visit.node for visit in asked]
        expected = (
            f"a node that waits for an answer: {', '.join(map(repr, names))}.{nearest_hint(node, names)}"
        )
        raise ConfigurationError("node", node, expected)
    return found


def _checked(setup: GraphSetup, visit: Visit, answer: object) -> object:
    declared = setup.answers.get(visit.node)
    adapter = None if declared is None else adapter_of(declared)
    if adapter is None:
        return answer
    try:
        return adapter.validate_python(answer)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}"
            for one in error.errors(include_url=False)
        )
        raise ConfigurationError(
            "input", answer, f"an answer that fits the question of node {visit.node!r}: {problems}"
        ) from error
