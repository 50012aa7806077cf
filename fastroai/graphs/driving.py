"""The state of a driven graph run, rebuilt from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.graphs.facts import ValueWritten
from fastroai.graphs.machine.events import Visit
from fastroai.graphs.machine.replay import replayed
from fastroai.graphs.machine.writes import writes_of
from fastroai.graphs.questions import answer_to
from fastroai.graphs.setup import GraphSetup
from fastroai.graphs.work import decision_as_json, decision_from_json
from fastroai.runs.driving import Outcome, Reported
from fastroai.runs.machine import Unit, unit_of
from fastroai.runs.openings import RunKeeper
from fastroai.runs.storing import checked_output
from fastroai.runtime import facts
from fastroai.store.memo import Memo
from fastroai.store.payloads import seal
from fastroai.store.unsealing import seal_payloads
from fastroai.store.values import value_to_json


class DrivenGraph:
    """A graph whose nodes somebody else runs. See `Driven`."""

    def __init__(
        self,
        setup: GraphSetup,
        recorded: Memo,
        keeper: RunKeeper,
    ) -> None:
        """Replay the log in a new state machine. Raises `RunCorrupt` if the log cannot be replayed."""
        self._setup, self._codec = setup, keeper.codec
        inputs = keeper.restored(recorded.opened.run_id, recorded.inputs)
        self.replay = replayed(setup, inputs, recorded, recorded.opened.part, keeper.codec, forgiving=False)

    @property
    def questions(self) -> Mapping[Unit, object]:
        """See `Driven`."""
        return {unit_of(asked): asked.question for asked in self.replay.machine.questions.values()}

    @property
    def waits(self) -> tuple[facts.Wait, ...]:
        """See `Driven`."""
        return self.replay.machine.waits

    def known_to(self, started: facts.StepStarted) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """See `Driven`. A decision is given the output of the node after which it is made."""
        machine = self.replay.machine
        decided = machine.decided_after(started)
        branch = machine.branch_of(started)
        assert branch is not None
        if decided is not None:
            return dict(branch.memory), {decided.node: machine.output_of(decided)}
        needs = {node: branch.outputs[node] for node in branch.sources if node in branch.outputs}
        return dict(branch.memory), needs

    def stored(self, fact: Reported) -> Sequence[facts.PlanFact]:
        """See `Driven`."""
        if isinstance(fact, facts.AnswerGiven):
            asked = self.replay.machine.questions[Visit(fact.step_id, fact.visit)]
            return (answer_to(self._setup, asked, fact.answer, codec=self._codec),)
        return (fact,) if isinstance(fact, facts.RunFact) else self._stored_outcome(fact)

    def _stored_outcome(self, fact: Outcome) -> Sequence[facts.PlanFact]:
        setup, node = self._setup, fact.step_id
        fact.branch = self.replay.due[unit_of(fact)].branch
        if isinstance(fact, facts.StepFinished) and self.replay.machine.decided_after(fact) is not None:
            return (replace(fact, output=seal(self._decision(fact), self._codec)),)
        written, stored = self._written(fact), replace(fact, written={})
        if isinstance(stored, facts.StepFinished | facts.QuestionAsked):
            is_question, is_pause = isinstance(stored, facts.QuestionAsked), node in setup.plan.pauses
            if is_question != is_pause:
                kind, verb = ("QuestionAsked", "is") if is_pause else ("StepFinished", "is not")
                raise ConfigurationError("fact", fact.kind, f"a {kind}, because {node!r} {verb} a pause node")
        if isinstance(stored, facts.StepFinished):
            output = checked_output(node, stored.output, setup.declared.get(node))
            writes_of(setup.plan, node, output, fact.written)
            stored.output = self._as_json(fact, output)
        elif isinstance(stored, facts.QuestionAsked):
            stored.question = self._as_json(fact, stored.question)
            stored.id, stored.answer_schema = facts.question_id(fact.place), setup.answer_schema(node)
        return (*written, seal_payloads(stored, self._codec))

    def _written(self, fact: Outcome) -> list[ValueWritten]:
        place = f"{fact.place}@{fact.attempt}"
        what = f"which node {fact.step_id!r} wrote,"
        return [
            ValueWritten(
                place=place, key=key, value=seal(value_to_json(value, None, f"{key!r}, {what}"), self._codec)
            )
            for key, value in fact.written.items()
        ]

    def _as_json(self, fact: facts.StepFact, value: object) -> JsonValue:
        declared = self._setup.declared.get(fact.step_id)
        return value_to_json(value, declared, f"the output of node {fact.step_id!r}")

    def _decision(self, fact: facts.StepFinished) -> JsonValue:
        """Return the decision that was reported: a target, or an object with `target` and `reasoning`."""
        given: JsonValue = {"target": fact.output} if isinstance(fact.output, str) else fact.output
        visit = self.replay.machine.decided_after(fact)
        assert visit is not None
        known = [one.target for one in self._setup.plan.edges[visit.node] if one.when == "llm_decide"]
        expected = f"a target of the llm_decide edges of {visit.node!r}: {', '.join(map(repr, known))}"
        try:
            decision = decision_from_json(given)
        except ValueError as error:
            raise ConfigurationError("output", fact.output, expected) from error
        if decision.target not in known:
            raise ConfigurationError(
                "output", decision.target, f"{expected}.{nearest_hint(decision.target, known)}"
            )
        return decision_as_json(decision)
