"""Which variant is better, and did it get worse: cases, evaluators, and variants side by side."""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.evaluation.cases import Case as Case
    from fastroai.evaluation.cases import EvaluatorContext as EvaluatorContext
    from fastroai.evaluation.comparing import compare as compare
    from fastroai.evaluation.comparing import compare_sync as compare_sync
    from fastroai.evaluation.comparison import Comparison as Comparison
    from fastroai.evaluation.intervals import Interval as Interval
    from fastroai.evaluation.results import CaseResult as CaseResult
    from fastroai.evaluation.results import EvaluationResult as EvaluationResult
    from fastroai.evaluation.results import VariantResult as VariantResult
    from fastroai.evaluation.splits import compare_splits as compare_splits
    from fastroai.evaluation.tasks import task as task
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(
        __name__, unlisted=["CaseResult", "Comparison", "EvaluationResult", "Interval", "VariantResult"]
    )
