"""`Comparison`: the results of variants, side by side, for people and programs."""

from __future__ import annotations

from fastroai.evaluation.compared import Compared
from fastroai.evaluation.showing import bundle, plot, text


class Comparison(Compared):
    """The results of variants on the cases of a dataset. `print` shows it as a table, and so do notebooks.

        comparison.quality("equals_expected")      # the share that passed, with its interval, by variant
        comparison.difference("equals_expected", "large")
        comparison.differing                       # names of the cases on which variants differ
        comparison.to_svg()                        # quality against cost

    A case on which the task failed has not passed any assertion. It has no scores.
    """

    def to_svg(self, evaluation: str | None = None) -> str:
        """Return a plot of quality against the cost of a case, with 95 % intervals, as an SVG image."""
        return plot(self, self.named(evaluation))

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(map(repr, self.variants))}>"

    def __str__(self) -> str:
        return text(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return bundle(self)
