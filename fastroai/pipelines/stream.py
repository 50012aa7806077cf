"""A pipeline run as a stream of what happens in it."""

from __future__ import annotations

from typing import Generic

from fastroai.pipelines.result import OutputT, PipelineResult
from fastroai.runs.stream import RunStream


class PipelineStream(RunStream[PipelineResult[OutputT]], Generic[OutputT]):
    """Iterates the events of a run, which goes on only as fast as they are read.

    Use it with `async for`, or with `async with` to be sure that leaving it has ended the run. Once the
    iteration has ended, `result` is the `PipelineResult`.
    """
