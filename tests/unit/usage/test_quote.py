import pickle
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastroai.errors import ConfigurationError
from fastroai.records import Tokens
from fastroai.usage import Budget, CostCalculator, Quote
from fastroai.usage.prices.flat_prices import FlatPrices

usd = st.decimals(min_value=0, max_value=10_000, places=9)


@st.composite
def quotes(draw: st.DrawFn) -> Quote:
    lower, expected, upper = sorted(draw(st.tuples(usd, usd, usd)))
    return Quote(
        name=draw(st.sampled_from(["", "a", "b"])),
        lower_usd=lower,
        expected_usd=expected,
        upper_usd=draw(st.sampled_from([upper, None])),
        lower_reasons=("least",),
        expected_reasons=("likely",),
        upper_reasons=("most",),
    )


budgets = st.builds(
    Budget,
    usd=st.decimals(min_value="0.000001", max_value=10_000, places=6),
    on_unpriced=st.sampled_from(["refuse", "allow"]),
    on_unbounded=st.sampled_from(["refuse", "allow"]),
    admission=st.sampled_from(["bound", "expected"]),
)


def in_order(quote: Quote) -> bool:
    return quote.lower_usd <= quote.expected_usd and (
        quote.upper_usd is None or quote.expected_usd <= quote.upper_usd
    )


@given(quotes(), quotes(), st.integers(0, 5), budgets, usd)
def test_whatever_is_done_to_quotes_their_amounts_stay_in_order(
    one: Quote, other: Quote, count: int, budget: Budget, expected: Decimal
) -> None:
    for made in (
        one + other,
        one * count,
        one.retried(count),
        one.within(budget),
        one.optional("it may be left out"),
        one.expecting(expected, "so it was last time"),
        Quote.total("both", {"one": one, "other": other}),
    ):
        assert in_order(made)


@given(st.lists(quotes(), min_size=1, max_size=20))
def test_sums_are_exact(parts: list[Quote]) -> None:
    for total in (sum(parts), Quote.total("all", {str(n): part for n, part in enumerate(parts)})):
        assert isinstance(total, Quote)
        assert Fraction(total.lower_usd) == sum(Fraction(part.lower_usd) for part in parts)
        assert Fraction(total.expected_usd) == sum(Fraction(part.expected_usd) for part in parts)
        uppers = [part.upper_usd for part in parts if part.upper_usd is not None]
        if len(uppers) == len(parts):
            assert total.upper_usd is not None
            assert Fraction(total.upper_usd) == sum(map(Fraction, uppers))
        else:
            assert total.upper_usd is None


@given(quotes(), budgets)
def test_a_budget_bounds_a_quote_unless_it_lets_pass_what_it_cannot_reckon_with(
    quote: Quote, budget: Budget
) -> None:
    under = quote.within(budget)
    assert budget.usd is not None
    if budget.admission == "expected":
        assert under.upper_usd == quote.upper_usd
    elif quote.upper_usd is not None:
        assert under.upper_usd == min(quote.upper_usd, budget.usd)
    elif "allow" in (budget.on_unpriced, budget.on_unbounded):
        assert under.upper_usd is None
        assert "'allow'" in under.upper_reasons[-1]
    else:
        assert under.upper_usd == budget.usd


def quote(lower: str, expected: str, upper: str | None, name: str = "") -> Quote:
    return Quote(
        name=name,
        lower_usd=Decimal(lower),
        expected_usd=Decimal(expected),
        upper_usd=None if upper is None else Decimal(upper),
        lower_reasons=("least",),
        expected_reasons=("likely",),
        upper_reasons=("most",),
    )


@pytest.mark.parametrize(
    "amounts", [("2", "1", "3"), ("1", "3", "2"), ("-1", "0", "1"), ("0", "1", "NaN"), ("0", "0", "Infinity")]
)
def test_amounts_that_cannot_be_meant_are_refused(amounts: tuple[str, str, str]) -> None:
    with pytest.raises(ConfigurationError, match="Quote"):
        quote(*amounts)


def test_a_known_cost_is_all_three() -> None:
    made = Quote.exactly("0.005", "one search", name="search")
    assert (made.lower_usd, made.expected_usd, made.upper_usd) == (Decimal("0.005"),) * 3
    assert made.lower_reasons == made.expected_reasons == made.upper_reasons == ("one search",)
    with pytest.raises(ConfigurationError, match="0 or more"):
        Quote.exactly("-1", "a refund")


def test_an_unknown_cost_is_from_nothing_without_a_limit() -> None:
    made = Quote.unknown("arbitrary code")
    assert (made.lower_usd, made.expected_usd, made.upper_usd) == (0, 0, None)
    assert made.upper_reasons == ("arbitrary code",)


def test_adding_quotes_keeps_whose_the_reasons_are() -> None:
    both = quote("1", "2", "3", "a") + quote("1", "2", None, "b")
    assert both.name == "a + b"
    assert both.upper_reasons == ("a: most", "b: most")
    assert (quote("1", "2", "3") + quote("1", "2", "3")).lower_reasons == ("least", "least")
    with pytest.raises(TypeError):
        quote("1", "2", "3") + 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        1 + quote("1", "2", "3")  # type: ignore[operator]


def test_a_quote_for_several_times_says_so() -> None:
    made = 3 * quote("1", "2", "3")
    assert (made.lower_usd, made.expected_usd, made.upper_usd) == (3, 6, 9)
    assert made.upper_reasons == ("3 times:", "most")
    assert (Quote.unknown("code") * 2).upper_usd is None
    with pytest.raises(ConfigurationError, match="count"):
        quote("1", "2", "3") * -1


def test_retries_raise_only_the_upper_amount() -> None:
    made = quote("1", "2", "3").retried(2)
    assert (made.lower_usd, made.expected_usd, made.upper_usd) == (1, 2, 9)
    assert made.upper_reasons == ("3 attempts, because retries=2, each of", "most")
    assert quote("1", "2", "3").retried(0) == quote("1", "2", "3")
    assert Quote.unknown("code").retried(2) == Quote.unknown("code")


def test_a_budget_below_everything_bounds_everything_and_says_so() -> None:
    made = quote("1", "2", "3").within(Budget(usd="0.5"))
    assert (made.lower_usd, made.expected_usd, made.upper_usd) == (Decimal("0.5"),) * 3
    assert made.lower_reasons == ("its budget stops it at $0.50", "least")
    assert made.expected_reasons == ("its budget stops it at $0.50", "likely")
    assert made.upper_reasons == ("its budget stops it at $0.50", "without it: most")


def test_a_budget_that_requests_can_exceed_bounds_only_what_is_likely() -> None:
    made = quote("1", "2", "3").within(Budget(usd="1.5", admission="expected"))
    assert (made.lower_usd, made.expected_usd, made.upper_usd) == (1, Decimal("1.5"), 3)
    assert made.expected_reasons == ("its budget stops it at $1.50", "likely")
    why = "its budget does not limit it: with 'expected', requests in flight can exceed the budget"
    assert made.upper_reasons == ("most", why)
    assert made.within(Budget(usd="1.7")).upper_usd == Decimal("1.7")


def test_a_budget_that_is_not_of_money_bounds_no_money() -> None:
    made = quote("1", "2", None)
    assert made.within(Budget(requests=3)) is made
    assert made.within(None) is made


def test_a_quote_can_lose_its_limit() -> None:
    made = quote("1", "2", "3").unbounded("its route calls a model")
    assert (made.upper_usd, made.upper_reasons) == (None, ("its route calls a model",))
    assert made.unbounded("and more").upper_reasons == ("and more", "its route calls a model")


def test_the_reason_for_a_total_without_limit_is_that_of_its_part() -> None:
    made = Quote.total("pipeline", {"a": quote("1", "2", "3"), "b": Quote.unknown("arbitrary code")})
    assert made.upper_usd is None
    assert made.upper_reasons == ("step 'b': arbitrary code",)
    assert made.parts["a"].upper_usd == 3
    assert Quote.total("p", {"a": quote("1", "2", "3")}).upper_reasons == ("the sum of its steps",)


def test_a_quote_reads_as_lines() -> None:
    made = Quote.total(
        "pipeline", {"a": quote("0.01", "0.02", "3", "a"), "b": Quote.unknown("code", name="b")}
    )
    assert str(made).splitlines() == [
        "pipeline: $0.01 to no known limit, expected $0.02",
        "  at least: the sum of its steps",
        "  expected: the sum of its steps",
        "  at most:  step 'b': code",
        "  a: $0.01 to $3.00, expected $0.02",
        "    at least: least",
        "    expected: likely",
        "    at most:  most",
        "  b: $0.00 to no known limit, expected $0.00",
        "    at least: nothing is known about its cost",
        "    expected: counted as $0.00, because nothing is known about its cost",
        "    at most:  code",
    ]
    assert str(Quote.exactly(0, "free")).startswith("quote: $0.00 to $0.00")


def test_quotes_can_be_kept() -> None:
    made = Quote.total("p", {"a": quote("1", "2", "3")})
    assert pickle.loads(pickle.dumps(made)) == made
    assert {made: "key"}[made] == "key"


# --- the prices of the least ---


@pytest.fixture
def calculator() -> CostCalculator:
    return CostCalculator(
        {
            "ours": {
                "input_per_mtok": 2,
                "output_per_mtok": 8,
                "cache_read_per_mtok": "0.5",
                "per_request": 1,
            },
            "gpt-plain-2024-08-06": {"input_per_mtok": "0.1", "output_per_mtok": 9},
        }
    )


@pytest.mark.usefixtures("list_prices")
@pytest.mark.parametrize(
    ("model", "lowest"),
    [
        (
            "openai:ours",
            FlatPrices(input_per_mtok=Decimal("0.5"), output_per_mtok=Decimal(8), per_request=Decimal(1)),
        ),
        # an answer may come from a snapshot, for which there is an override
        ("openai:gpt-plain", FlatPrices(input_per_mtok=Decimal("0.1"), output_per_mtok=Decimal(8))),
        ("openai:gpt-tiered", FlatPrices(input_per_mtok=Decimal(2), output_per_mtok=Decimal(8))),
        ("openai:gpt-variants", FlatPrices(input_per_mtok=Decimal("0.5"), output_per_mtok=Decimal(4))),
        ("openai:gpt-dated", FlatPrices(input_per_mtok=Decimal("0.5"), output_per_mtok=Decimal(7))),
        ("openai:gpt-pages", FlatPrices(input_per_mtok=Decimal(2))),
        ("test:test", FlatPrices()),
        ("openai:unheard-of", None),
    ],
)  # fmt: skip
def test_lower_prices_are_below_every_price_that_can_apply(
    calculator: CostCalculator, model: str, lowest: FlatPrices | None
) -> None:
    assert calculator.lower_prices(model) == lowest


@pytest.mark.usefixtures("list_prices")
@given(
    model=st.sampled_from(["gpt-plain", "gpt-tiered", "gpt-variants", "gpt-dated", "gpt-hourly", "gpt-fees"]),
    output_tokens=st.integers(0, 10_000),
    data=st.data(),
)
def test_no_request_costs_less_than_its_tokens_at_lower_prices(
    model: str, output_tokens: int, data: st.DataObject
) -> None:
    calculator = CostCalculator()
    input_tokens = data.draw(st.integers(0, 10_000))
    cached = data.draw(st.integers(0, input_tokens))
    tokens = Tokens(input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached)
    cost = calculator.price(tokens, model=model, provider="openai")
    lowest = calculator.lower_prices(f"openai:{model}")
    assert cost is not None
    assert lowest is not None
    assert lowest.cost(input_tokens, output_tokens) <= cost


def test_amounts_are_exact_decimals_whatever_they_were_given_as() -> None:
    one = Quote(lower_usd=0.1, expected_usd="0.2", upper_usd=1)  # type: ignore[arg-type]
    assert one + one == Quote(lower_usd=Decimal("0.2"), expected_usd=Decimal("0.4"), upper_usd=Decimal(2))
    assert one.expecting(0.3).expected_usd == Decimal("0.3")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="usd="):
        one.expecting(Decimal("NaN"))
