"""A baseline: what each case had when somebody kept it, to find the cases that got worse since."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from fastroai.errors import ConfigurationError
from fastroai.evaluation.code import plain
from fastroai.evaluation.comparison import Comparison
from fastroai.evaluation.results import CaseResult, VariantResult
from fastroai.store.reading.as_json import json_text
from fastroai.store.record.declarations import digest

_MOST_BYTES: Final = 50_000_000


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class KeptCase(_Kept):
    """What one case had."""

    asked: str
    """A hash of the inputs and the expected output, by which it is known that the case is still the same."""
    failed: bool = False
    assertions: dict[str, bool] = {}
    scores: dict[str, FiniteFloat] = {}


class Baseline(_Kept):
    """What the cases of each variant had, by name."""

    format: Literal["fastroai-baseline-1"]
    variants: dict[str, dict[str, KeptCase]]

    @classmethod
    def of(cls, comparison: Comparison) -> Baseline:
        """Return the baseline of a comparison."""
        return cls(
            format="fastroai-baseline-1",
            variants={
                name: {
                    case.name: KeptCase(
                        asked=_asked(case),
                        failed=case.failure is not None,
                        assertions=case.assertions,
                        scores={score: float(value) for score, value in case.scores.items()},
                    )
                    for case in variant.cases.values()
                }
                for name, variant in comparison.variants.items()
            },
        )

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """Read a baseline from its file.

        Raises:
            ConfigurationError: there is no such file, or it has no baseline.
        """
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ConfigurationError("--baseline", str(path), f"a file of at most {_MOST_BYTES:,} bytes")
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            expected = f"a file that can be read ({error.strerror}); --update-baseline writes it"
            raise ConfigurationError("--baseline", str(path), expected) from error
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            expected = f"a file that --update-baseline has written; {place}: {first['msg']}"
            raise ConfigurationError("--baseline", str(path), expected) from error

    def write(self, path: Path) -> None:
        """Write the file, as a whole."""
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(self.model_dump_json(indent=1, exclude_defaults=True) + "\n")
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)

    def worse_in(self, comparison: Comparison, tolerance: float, path: Path) -> Sequence[str]:
        """Return a sentence for each case that got worse: its task fails, or an evaluation is lower.

        Args:
            comparison: The current results. Variants and cases that are new in it are not compared.
            tolerance: By how much a score may be lower.
            path: The file of the baseline, for errors.

        Raises:
            ConfigurationError: the baseline is that of another dataset, or has a variant that is gone.
        """
        if gone := [name for name in self.variants if name not in comparison.variants]:
            named = ", ".join(map(repr, gone))
            raise _mismatch(path, f"results of the compared variants only; the comparison has no {named}")
        worse: list[str] = []
        for name, before in self.variants.items():
            variant = comparison.variants[name]
            _check_same(path, before, variant)
            for case, kept in before.items():
                if case in variant.cases:
                    told = _worse(kept, variant.cases[case], tolerance)
                    worse += [f"{name}, case {case!r}: {one}" for one in told]
        return worse


def _check_same(path: Path, kept: Mapping[str, KeptCase], variant: VariantResult) -> None:
    for name, before in kept.items():
        if name in variant.missing:
            continue
        if name not in variant.cases:
            raise _mismatch(path, f"the cases of this dataset, which has no case {name!r}")
        if _asked(variant.cases[name]) != before.asked:
            expected = f"the cases of this dataset; case {name!r} has other inputs or another expected output"
            raise _mismatch(path, expected)


def _mismatch(path: Path, expected: str) -> ConfigurationError:
    return ConfigurationError("--baseline", str(path), f"{expected}. If that is right, --update-baseline")


def _worse(kept: KeptCase, now: CaseResult, tolerance: float) -> list[str]:
    if now.failure is not None:
        return [] if kept.failed else [f"it fails now: {now.failure}"]
    told = [
        f"{name}: passed before, {'not now' if name in now.assertions else 'has no value now'}"
        for name, passed in kept.assertions.items()
        if passed and not now.assertions.get(name)
    ]
    for name, before in kept.scores.items():
        value = now.scores.get(name)
        if value is None:
            told.append(f"{name}: {before:g} before, has no value now")
        elif value < before - tolerance:
            told.append(f"{name}: {before:g} before, {value:g} now")
    return told


def _asked(case: CaseResult) -> str:
    return digest(json_text(plain([case.inputs, case.expected_output])))
