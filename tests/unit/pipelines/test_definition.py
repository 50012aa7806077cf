"""The shape of a pipeline."""

from collections.abc import Mapping
from typing import Any

from support.durable import Counted

from fastroai.pipelines import BasePipeline, Pipeline


class Router(BasePipeline[Any, Any]):
    async def route(self, inputs: Mapping[str, Any], deps: Any) -> str:
        return "x"


def test_a_definition_is_plain_data() -> None:
    router = Router("router")
    router.register_pipeline("x", Counted().pipeline("p", {"a": []}))
    assert Pipeline("outer", {"in": router.as_step()}).definition == {
        "name": "outer",
        "output_step": "in",
        "steps": {
            "in": {
                "needs": [],
                "on_error": "fail",
                "runs": {
                    "name": "router",
                    "routes": {
                        "x": {
                            "name": "p",
                            "output_step": "a",
                            "steps": {"a": {"needs": [], "on_error": "fail", "runs": None}},
                        }
                    },
                },
            }
        },
    }
