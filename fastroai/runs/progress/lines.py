"""Progress as lines of text."""

from __future__ import annotations

from fastroai.durations import duration
from fastroai.plain_text import plain_line
from fastroai.runs.progress.progress import Progress
from fastroai.runtime.fact_base import RunEvent
from fastroai.runtime.facts import StepFailed, StepFinished, StepRetried, StepSkipped, StepStarted
from fastroai.usage import format_cost


def line_of(label: str, event: RunEvent) -> str | None:
    """Return what happened to a step as a line; `None` for other events."""
    match event:
        case StepStarted():
            said = f"started, because {event.cause}"
        case StepSkipped():
            said = f"skipped, because {event.cause}"
        case StepRetried():
            why = f"attempt {event.attempt} failed: {_error(event.error)}"
            said = f"{why}; tried again after {duration(event.delay)}"
        case StepFailed():
            said = f"failed: {_error(event.error)}"
        case StepFinished():
            spent = event.usage
            said = f"finished ({format_cost(spent)})" if spent.request_count or spent.cost_usd else "finished"
        case _:
            return None
    return plain_line(f"{'/'.join([label, *event.path[1:], event.step_id])}: {said}")


def _error(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def count_of(progress: Progress) -> str:
    """Return how much of a run is done, such as `3/7 steps, 1 failed`."""
    total = "" if progress.total is None else f"/{progress.total:,}"
    many = progress.ended if progress.total is None else progress.total
    failed = f", {progress.failed:,} failed" if progress.failed else ""
    return f"{progress.ended:,}{total} {progress.noun}{'' if many == 1 else 's'}{failed}"


def cost_of(progress: Progress) -> str:
    """Return what a run has cost so far, and what is left of its budget."""
    left = "" if progress.left_usd is None else f" ({format_cost(progress.left_usd)} left)"
    return f"{format_cost(progress)}{left}"


def pace_of(progress: Progress) -> str:
    """Return how fast a run goes, and how long the rest takes; for a run that has ended, how long it took."""
    if progress.status != "running":
        return duration(progress.seconds)
    rate = "" if progress.rate is None else f"{progress.rate:.3g}/s"
    left = "" if progress.seconds_left is None else f"{duration(progress.seconds_left)} left"
    return ", ".join(filter(None, (duration(progress.seconds), rate, left)))


def summary_of(label: str, progress: Progress) -> str:
    """Return how far a run is, in one line."""
    parts = (count_of(progress), cost_of(progress), pace_of(progress))
    return plain_line(f"{label}: {progress.status}: {'; '.join(parts)}")
