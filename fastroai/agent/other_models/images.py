"""Models that make images, whose requests are reserved and charged like other spending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from pydantic_ai.images import (
    ImageGenerationInput,
    ImageGenerationModel,
    ImageGenerationResult,
    ImageGenerationSettings,
    WrapperImageGenerationModel,
    infer_image_generation_model,
)

from fastroai.agent.models import build_provider, naming_our_extra
from fastroai.agent.other_models.purchases import buy
from fastroai.agent.other_models.unmetered import FollowedMethods
from fastroai.steps.reserving import SpendTerms
from fastroai.steps.spend_price import SpendPrice, Units, tokens_of
from fastroai.usage import CostCalculator
from fastroai.usage.bounding.tokenizers import bytes_of
from fastroai.usage.facts.allowances import IMAGE_PROMPT
from fastroai.usage.facts.billing import IMAGES_AT_ONE_PRICE
from fastroai.usage.facts.finish_reasons import LOCAL_PROVIDERS
from fastroai.usage.facts.models import made_images, model_facts
from fastroai.usage.facts.provider import MadeImages
from fastroai.usage.prices.hosts import is_first_party
from fastroai.usage.prices.rate_card import UNITS
from fastroai.usage.prices.request_cost import UNKNOWN_COST, RequestCost

_SAY_MOST: Final = "pass the most that one call can cost: image_model(..., most_usd=...)"


class MeteredImageModel(FollowedMethods, WrapperImageGenerationModel):
    """A model that makes images, whose requests are reserved and charged; made by `Metered.image_model`.

    A request reserves `most_usd`, if that is given, else the documented maximum of its images. It is charged
    the bill that the provider states, else its tokens. Like other spending outside of model requests, it does
    not count in `Budget(requests=)`.
    """

    def __init__(
        self,
        wrapped: ImageGenerationModel | str,
        calculator: CostCalculator,
        most_usd: Decimal | None,
        retries: int,
    ) -> None:
        with naming_our_extra(str(wrapped)):
            super().__init__(infer_image_generation_model(wrapped, provider_factory=build_provider))
        self.calculator, self._most_usd, self._retries = calculator, most_usd, retries

    async def generate(
        self,
        prompt: str,
        *,
        images: Sequence[ImageGenerationInput] | None = None,
        settings: ImageGenerationSettings | None = None,
    ) -> ImageGenerationResult:
        """Make images, as PydanticAI does.

        Raises:
            BudgetExceeded: a budget or a spend limit cannot pay for it; nothing is sent.
            UnpricedModelError: there is a budget of money, no price for the model, and no `most_usd`.
            UnboundedRequestError: there is a budget, nothing documented bounds the images, and no `most_usd`.
        """
        if self.system in LOCAL_PROVIDERS:
            return await self.wrapped.generate(prompt, images=images, settings=settings)
        prepared, references, merged = self.wrapped.prepare_generate(prompt, images=images, settings=settings)
        price = SpendPrice(self.calculator, self.model_name, self.system, None, self.base_url)
        terms = self._terms(price, self._most_units(prepared, references, merged))
        return await buy(
            terms,
            price,
            {},
            send=lambda: self.wrapped.generate(prompt, images=images, settings=settings),
            used=lambda result: _used(price, result),
            retries=self._retries,
        )

    def _terms(self, price: SpendPrice, units: Units | str) -> SpendTerms:
        """Return what to reserve for `units`: the most that the request can use, or why that is not known."""
        unbounded = units if isinstance(units, str) else None
        known = {} if isinstance(units, str) else units
        if self._most_usd is not None:
            most = SpendPrice.stated(self._most_usd)
        elif known:
            most = _cost(price, known)
        else:
            most = UNKNOWN_COST
            unbounded = f"{unbounded}; {_SAY_MOST}" if _cost(price, {"output_tokens": 1}).complete else None
        return SpendTerms(
            model=self.model_name,
            provider=self.system,
            most=most,
            tokens=tokens_of(known),
            unbounded=unbounded,
        )

    def _most_units(
        self, prompt: str, references: Sequence[ImageGenerationInput], settings: Mapping[str, object]
    ) -> Units | str:
        """Return the most that a request can use, or why that is not known."""
        if settings.get("extra_body"):
            return "extra_body can hold settings that cost more"
        if not is_first_party(self.system, self.base_url):
            return f"the documented limits of {self.model_name} apply only at its maker's own address"
        text = bytes_of(prompt) + IMAGE_PROMPT.tokens
        if (documented := made_images(self.model_name)) is not None:
            return _most_of_openai(documented, text, len(references), settings)
        facts = model_facts(self.system, self.model_name)
        if facts is None or facts.output_tokens is None or references:
            return "no page of the provider says how many tokens an image can be"
        return _units(text, 0, facts.output_tokens)


def _most_of_openai(
    documented: MadeImages, text: int, references: int, settings: Mapping[str, object]
) -> Units | str:
    quality, size, number = map(settings.get, ("openai_quality", "openai_size", "openai_n"))
    if "dimensions" in settings or "aspect_ratio" in settings:
        size = None  # the provider may choose any size
    each = documented.most_tokens(quality, size)
    if each is None:
        return f"no page of the provider says how many tokens an image of {quality=} and {size=} is"
    if references and documented.reference_tokens is None:
        return "no page of the provider says how many tokens reference images are"
    made = each * number if isinstance(number, int) else each
    return _units(text, references * (documented.reference_tokens or 0), made)


def _units(text: int, references: int, made: int) -> Units:
    return {
        "input_tokens": text + references,
        "input_image_tokens": references,
        "output_tokens": made,
        "output_image_tokens": made,
    }


def _used(price: SpendPrice, result: ImageGenerationResult) -> Units:
    """Return the units that a result reports; none if it reports no output, so the bound counts."""
    usage = result.usage
    if not usage.output_tokens or usage.unmeasured_requests:
        return {}
    units = {name: count for name, count in vars(usage).items() if count and name in UNITS}
    # These models output only images and thoughts, and not all answers say how many tokens are which.
    units.setdefault("output_image_tokens", usage.output_tokens - usage.output_reasoning_tokens)
    return _sold(price, units)


def _cost(price: SpendPrice, units: Units) -> RequestCost:
    return price.of(_sold(price, units))


def _sold(price: SpendPrice, units: Units) -> Units:
    """Return the units that have prices; image output is plain output if the model has one price."""
    cost = price.of(units)
    if "output_image_tokens" not in cost.unpriced_units:
        return units
    if price.provider not in IMAGES_AT_ONE_PRICE.names and cost.source != "override":
        return units
    split = ("output_image_tokens", "output_text_tokens")
    return {name: count for name, count in units.items() if name not in split}
