"""Whether every model class of PydanticAI is asked in the tests, or has a reason not to be."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pydantic_ai.models
from pydantic_ai.models import Model

TESTS = Path(__file__).parents[1] / "unit" / "usage" / "test_model_classes.py"

NOT_HERE = {
    "ConcurrencyLimitedModel": "wraps others",
    "DecisionModel": "not asked for text",
    "FallbackModel": "made of others",
    "FunctionModel": "sends nothing",
    "GoogleDecisionsModel": "not asked for text",
    "InMemoryBatchModel": "wraps others",
    "InstrumentedModel": "wraps others",
    "MCPSamplingModel": "asks the client of an MCP server, who pays",
    "OpenAICodexModel": "billed by subscription",
    "OpenAIDecisionsModel": "not asked for text",
    "SystemOneModel": "not asked for text",
    "TestModel": "sends nothing",
    "WrapperModel": "wraps others",
}


def model_classes() -> set[str]:
    found = set()
    for module in pkgutil.iter_modules(pydantic_ai.models.__path__):
        if module.name.startswith("_") or module.name == "typesafe":  # it needs an SDK of its own
            continue
        members = vars(importlib.import_module(f"pydantic_ai.models.{module.name}")).values()
        found |= {each.__name__ for each in members if inspect.isclass(each) and issubclass(each, Model)} - {
            "Model",
            "OpenAIModel",
            "GeminiModel",
        }
    return {name for name in found if not name.startswith("_")}


def test_every_model_class_is_tested_or_has_a_reason() -> None:
    built = {
        node.func.id
        for node in ast.walk(ast.parse(TESTS.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    missing = model_classes() - built - NOT_HERE.keys()
    assert not missing, (
        f"new model classes: {sorted(missing)}. Add each to PRICED or UNPRICED in {TESTS.name} and bound "
        "its requests, or to NOT_HERE here with the reason"
    )
