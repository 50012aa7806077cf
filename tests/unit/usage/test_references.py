import pytest
from pydantic_ai.models import infer_model, known_model_names
from pydantic_ai.models.test import TestModel

from fastroai.errors import UnknownModelError
from fastroai.usage import model_reference
from fastroai.usage.prices.references import near_reference


@pytest.mark.parametrize(
    ("bare", "provider"),
    [
        ("gpt-5-mini", "openai"),
        ("gpt-4o-2024-08-06", "openai"),
        ("chatgpt-4o-latest", "openai"),
        ("o1", "openai"),
        ("o3-mini", "openai"),
        ("claude-sonnet-4-5", "anthropic"),
        ("gemini-2.5-pro", "google"),
    ],
)
def test_a_bare_name_of_a_first_party_model_means_its_maker(bare: str, provider: str) -> None:
    assert model_reference(bare) == (provider, bare)
    assert str(model_reference(bare)) == f"{provider}:{bare}"


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
def test_every_first_party_model_that_pydantic_ai_knows_can_be_named_bare(provider: str) -> None:
    families = ("gpt-", "o1", "o3", "o4", "claude-", "gemini-")
    known = [name.partition(":")[2] for name in known_model_names() if name.startswith(f"{provider}:")]
    bare = [name for name in known if name.startswith(families)]
    assert bare
    assert {model_reference(name).provider for name in bare} == {provider}


@pytest.mark.parametrize(
    "reference",
    [
        "openai:gpt-5-mini",
        "bedrock:anthropic.claude-v1:0",
        "gateway/openai:gpt-5",
        "my-own:claude-x",
        "ollama:llama3:8b",
    ],
)
def test_a_reference_with_a_provider_is_kept_as_it_is(reference: str) -> None:
    provider, _, model = reference.partition(":")
    assert model_reference(reference) == (provider, model)
    assert str(model_reference(reference)) == reference


def test_test_stays_the_test_model() -> None:
    assert isinstance(infer_model(str(model_reference("test"))), TestModel)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("llama-3.3-70b-versatile", "groq:llama-3.3-70b-versatile"),
        ("gpt-oss-120b", "groq:openai/gpt-oss-120b"),
        ("claud-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        (" gpt-4o", "openai:gpt-4o"),
        ("gpt-4o ", "openai:gpt-4o"),
        (":gpt-4o", "openai:gpt-4o"),
        ("gpt4o", "openai:gpt-4o"),
        ("o3x", "openai:o3"),
    ],
)
def test_a_provider_that_cannot_be_told_is_an_error_that_names_candidates(
    reference: str, candidate: str
) -> None:
    with pytest.raises(UnknownModelError, match="write it as one of") as caught:
        model_reference(reference)
    assert candidate in caught.value.candidates
    assert len(caught.value.candidates) <= 5


@pytest.mark.parametrize("reference", ["", "  ", "openai:", "a-model-of-nobody"])
def test_a_name_like_no_other_is_an_error_that_shows_the_form(reference: str) -> None:
    with pytest.raises(UnknownModelError, match="write it as 'provider:model'"):
        model_reference(reference)


@pytest.mark.parametrize(
    ("provider", "model", "near"),
    [
        ("openai", "gpt-5-mni", "openai:gpt-5-mini"),
        ("openai", "gpt-5-mini", None),
        ("openai", "our-model", None),
        ("nobody", "gpt-5-mni", None),
    ],
)
def test_the_nearest_model_is_one_of_the_same_provider(provider: str, model: str, near: str | None) -> None:
    assert near_reference(provider, model) == near
