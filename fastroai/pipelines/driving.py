"""The state of a driven pipeline run, rebuilt from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fastroai.errors import ConfigurationError
from fastroai.pipelines.replay import replayed
from fastroai.pipelines.setup import PipelineSetup
from fastroai.runs.driving import Reported
from fastroai.runs.machine import Unit
from fastroai.runs.openings import RunKeeper
from fastroai.runs.storing import checked_output, stored_finish
from fastroai.runtime.facts import AnswerGiven, PlanFact, QuestionAsked, StepFinished, StepStarted, Wait
from fastroai.steps import ConversationState
from fastroai.store.memo import Memo


class DrivenPipeline:
    """A pipeline whose steps somebody else runs. See `Driven`."""

    questions: Mapping[Unit, object] = {}

    def __init__(
        self,
        setup: PipelineSetup,
        recorded: Memo,
        keeper: RunKeeper,
    ) -> None:
        """Replay the log in a new state machine."""
        self._setup, self._recorded, self._keeper = setup, recorded, keeper
        self.replay = replayed(setup, recorded, recorded.opened.part)

    @property
    def waits(self) -> tuple[Wait, ...]:
        """See `Driven`."""
        return self.replay.machine.waits

    def known_to(self, started: StepStarted) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """See `Driven`."""
        recorded, keeper = self._recorded, self._keeper
        outputs = self.replay.outputs(self._setup, recorded, keeper.codec)
        needs = self._setup.plan.dependencies[started.step_id]
        inputs = keeper.restored(recorded.opened.run_id, recorded.inputs)
        return inputs, {step_id: outputs[step_id] for step_id in needs}

    def stored(self, fact: Reported) -> Sequence[PlanFact]:
        """See `Driven`."""
        if isinstance(fact, QuestionAsked | AnswerGiven):
            raise ConfigurationError(
                "fact",
                fact.kind,
                "the outcome of a step: a pipeline has no pause nodes",
            )
        if not isinstance(fact, StepFinished):
            return (fact,)
        declared = self._setup.declared.get(fact.step_id)
        fact = replace(fact, output=checked_output(fact.step_id, fact.output, declared))
        if isinstance(fact.output, ConversationState):
            fact.conversation = "incomplete" if fact.output.is_incomplete else "complete"
        return (stored_finish(fact, declared, self._keeper.codec),)
