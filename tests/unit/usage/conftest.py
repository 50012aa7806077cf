from collections.abc import Iterator
from datetime import date, time
from decimal import Decimal

import pytest
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import (
    ClauseEquals,
    ClauseStartsWith,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    PriceVariant,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)

PLAIN = ModelPrice(
    input_mtok=Decimal(2), cache_read_mtok=Decimal("0.5"), cache_write_mtok=None, output_mtok=Decimal(8)
)


def _model(name: str, prices: ModelPrice | list[ConditionalPrice], **more: object) -> ModelInfo:
    return ModelInfo(id=name, match=ClauseEquals(equals=name), prices=prices, **more)  # type: ignore[arg-type]


def _tiered(base: int, start: int, above: int) -> TieredPrices:
    return TieredPrices(base=Decimal(base), tiers=[Tier(start=start, price=Decimal(above))])


_MODELS = [
    _model("gpt-plain", PLAIN),
    _model("gpt-tiered", ModelPrice(input_mtok=_tiered(2, 1000, 4), output_mtok=_tiered(8, 1000, 12))),
    _model(
        "gpt-variants",
        PLAIN,
        price_variants=[
            PriceVariant(when={"service_tier": "priority"}, prices=ModelPrice(input_mtok=Decimal(5))),
            PriceVariant(when={"service_tier": "flex"}, prices=ModelPrice(output_mtok=Decimal(4))),
        ],
    ),
    _model(
        "gpt-dated",
        [
            ConditionalPrice(prices=ModelPrice(input_mtok=Decimal(100), output_mtok=Decimal(100))),
            ConditionalPrice(StartDateConstraint(date(2020, 1, 1)), prices=PLAIN),
            ConditionalPrice(
                StartDateConstraint(date(2999, 1, 1)),
                prices=ModelPrice(input_mtok=Decimal(3), output_mtok=Decimal(7)),
            ),
        ],
    ),
    _model(
        "gpt-hourly",
        [
            ConditionalPrice(prices=PLAIN),
            ConditionalPrice(
                TimeOfDateConstraint(start_time=time(8), end_time=time(18)),
                prices=ModelPrice(input_mtok=Decimal(6), output_mtok=Decimal(6)),
            ),
        ],
    ),
    _model(
        "gpt-day-and-night",
        [
            ConditionalPrice(TimeOfDateConstraint(start_time=time(0), end_time=time(12)), prices=PLAIN),
            ConditionalPrice(
                TimeOfDateConstraint(start_time=time(12), end_time=time(0)),
                prices=ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(9)),
            ),
        ],
    ),
    _model(
        "gpt-fees",
        ModelPrice(input_mtok=Decimal(2), output_mtok=Decimal(8), requests_kcount=Decimal(5)),
    ),
    _model(
        "gpt-native-tools",
        ModelPrice(input_mtok=Decimal(2), output_mtok=Decimal(8), web_searches_kcount=Decimal(10)),
    ),
    _model("gpt-search", PLAIN),
    _model("gpt-pages", ModelPrice(input_mtok=Decimal(2), input_document_kpages=Decimal(1))),
    _model("gpt-from-the-future", ModelPrice(input_mtok=Decimal(2), input_dream_mtok=Decimal(9))),
    _model("gpt-transcribe", ModelPrice(audio_hours=Decimal(1))),
    _model("gpt-gone", ModelPrice()),
    _model("gpt-plain:free", ModelPrice()),
]


@pytest.fixture
def list_prices() -> Iterator[None]:
    """List prices made up for these tests: those of genai-prices change with each of its releases."""
    provider = Provider(
        id="openai",
        name="OpenAI",
        api_pattern=r"https://api\.openai\.com",
        model_match=ClauseStartsWith(starts_with="gpt-"),
        models=_MODELS,
    )
    set_custom_snapshot(DataSnapshot([provider], from_auto_update=False))
    yield
    set_custom_snapshot(None)
