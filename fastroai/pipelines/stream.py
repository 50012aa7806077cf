"""A pipeline run as a stream of its events."""

from __future__ import annotations

from typing import TypeAlias

from fastroai.pipelines.result import OutputT, PipelineResult
from fastroai.runs.stream import RunStream

PipelineStream: TypeAlias = RunStream[PipelineResult[OutputT]]
"""The stream of a run of a pipeline: `result` is a `PipelineResult` once the iteration has ended."""
