import csv
import io
import json
import pickle
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal, localcontext
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from rich.console import Console
from support.agents import TOKEN_IS_MICROCENT, paid_agent

from fastroai.agent import FastroAgent
from fastroai.pipelines import Pipeline
from fastroai.records import RequestRecord, Tokens, Usage, exact_sum
from fastroai.steps import StepContext, step
from fastroai.usage import UsageReport, UsageRow


def paid(cost_usd: str | None, **fields: object) -> RequestRecord:
    cost = None if cost_usd is None else Decimal(cost_usd)
    defaults: dict[str, object] = {"model": "gpt-5-mini", "provider": "openai", "outcome": "settled"}
    return RequestRecord(**(defaults | {"cost_usd": cost} | fields))  # type: ignore[arg-type]


def unmeasured(bound_usd: str | None, **fields: object) -> RequestRecord:
    bound = None if bound_usd is None else Decimal(bound_usd)
    return paid(None, outcome="unmeasured", bound_usd=bound, **fields)


# --- sums ---

COUNTS = (
    "request_count",
    "failed_requests",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "unpriced_requests",
    "unmeasured_requests",
    "unbounded_requests",
)
AMOUNTS = ("cost_usd", "uncertain_usd", "committed_usd")

names = st.none() | st.sampled_from(["write", "classify", "(no step)", ""])
# Thirty digits are more than Python's decimal context keeps.
amounts = st.none() | st.integers(0, 10**30).map(lambda units: Decimal(units).scaleb(-27))
tokens = st.builds(
    Tokens,
    input_tokens=st.integers(0, 10**6),
    output_tokens=st.integers(0, 10**6),
    cache_read_tokens=st.integers(0, 10**6),
    cache_write_tokens=st.integers(0, 10**6),
)
records = st.builds(
    RequestRecord,
    model=st.sampled_from(["gpt-5-mini", "gpt-5-nano"]),
    provider=st.sampled_from(["openai", "azure", ""]),
    outcome=st.sampled_from(["settled", "unmeasured", "released"]),
    tokens=tokens,
    cost_usd=amounts,
    bound_usd=amounts,
    use=st.sampled_from(["kept", "retried", "failed"]),
    tools=st.lists(st.sampled_from(["search", "fetch", "add"]), max_size=3).map(tuple),
    agent=names,
    step_id=names,
    variant=names,
)


def summed(rows: Iterable[UsageRow], field: str) -> Decimal:
    return exact_sum(Decimal(getattr(row, field)) for row in rows)


@given(st.lists(records))
def test_the_rows_of_each_group_sum_exactly_to_the_total(requests: list[RequestRecord]) -> None:
    report = UsageReport.of(requests)
    for group in (report.by_step, report.by_agent, report.by_model, report.by_variant, report.by_outcome):
        for field in (*COUNTS, *AMOUNTS):
            assert summed(group.values(), field) == getattr(report.total, field)
        assert all(name == row.name for name, row in group.items())


@given(st.lists(records))
def test_what_tools_share_is_exactly_what_the_requests_cost_that_brought_their_returns(
    requests: list[RequestRecord],
) -> None:
    of_tools = UsageReport.of(request for request in requests if request.tools).total
    by_tool = UsageReport.of(requests).by_tool
    for field in (*AMOUNTS, "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"):
        assert summed(by_tool.values(), field) == getattr(of_tools, field)


@given(st.lists(records))
def test_the_total_is_that_of_the_usage(requests: list[RequestRecord]) -> None:
    usage = Usage.of(requests)
    total = UsageReport.of(requests).total
    assert (total.cost_usd, total.committed_usd) == (usage.cost_usd, usage.committed_usd)
    assert (total.request_count, total.failed_requests) == (usage.request_count, usage.failed_requests)
    assert total.cost_complete == usage.cost_complete


def test_no_digit_is_lost_in_a_coarse_decimal_context() -> None:
    with localcontext(prec=2):
        report = UsageReport.of([paid("1.11"), paid("0.00123456", tools=("a", "b"))])
        assert report.total.cost_usd == Decimal("1.11123456")
        assert report.by_tool["a"].cost_usd == Decimal("0.00061728")


def test_an_account_of_nothing_is_a_total_of_zero() -> None:
    report = UsageReport.of([])
    assert (report.total.cost_usd, report.total.share, report.total.cost_complete) == (0, None, True)
    assert not any(report.groups[name] for name in ("step", "agent", "model", "tool", "variant"))
    assert str(report).splitlines()[1].split() == ["total", "0.00", "0", "0", "0"]


# --- groups ---


def test_rows_say_what_each_step_agent_and_model_cost_the_most_expensive_first() -> None:
    report = UsageReport.of(
        [
            paid("0.001", step_id="read", agent="reader", tokens=Tokens(input_tokens=10, output_tokens=2)),
            paid("0.002", step_id="write", agent="writer", model="gpt-5"),
            paid("0.005", step_id="write", model="search-engine", provider=""),
            unmeasured("0.003", step_id="check", agent="reader"),
        ]
    )
    assert {name: row.cost_usd for name, row in report.by_step.items()} == {
        "write": Decimal("0.007"),
        "check": 0,
        "read": Decimal("0.001"),
    }
    assert list(report.by_step) == ["write", "check", "read"]
    assert list(report.by_agent) == ["(no agent)", "reader", "writer"]
    assert list(report.by_model) == ["search-engine", "openai:gpt-5-mini", "openai:gpt-5"]
    assert (report.by_step["read"].input_tokens, report.by_step["read"].output_tokens) == (10, 2)
    assert report.by_step["write"].share == 0.875
    assert list(UsageReport.of([paid("0.001")]).by_step) == ["(no step)"]


def test_rows_that_cost_the_same_keep_the_order_of_their_first_requests() -> None:
    report = UsageReport.of([paid("0.1", step_id=name) for name in ("b", "a", "c", "a", "b", "c")])
    assert list(report.by_step) == ["b", "a", "c"]


def test_outcomes_are_always_these_four_and_released_requests_cost_nothing() -> None:
    report = UsageReport.of(
        [
            paid("0.001"),
            paid("0.002", use="retried"),
            paid("0.003", use="failed"),
            paid(None, outcome="released", use="failed"),
        ]
    )
    assert {name: (row.request_count, row.cost_usd) for name, row in report.by_outcome.items()} == {
        "kept": (1, Decimal("0.001")),
        "retried": (1, Decimal("0.002")),
        "failed": (1, Decimal("0.003")),
        "released": (0, 0),
    }
    assert report.by_outcome["released"].failed_requests == report.total.failed_requests == 1
    assert list(UsageReport.of([]).by_outcome) == ["kept", "retried", "failed", "released"]


def test_the_cost_of_a_request_is_divided_among_the_tools_whose_returns_it_brought() -> None:
    spent = Tokens(input_tokens=11, output_tokens=4)
    report = UsageReport.of(
        [
            paid("0.01", tokens=spent, tools=("search", "fetch", "add")),
            paid("0.5", tools=("fetch",)),
            paid("7"),
        ]
    )
    assert {name: row.cost_usd for name, row in report.by_tool.items()} == {
        "fetch": Decimal("0.503333333333"),
        "search": Decimal("0.003333333334"),
        "add": Decimal("0.003333333333"),
    }
    rows = [report.by_tool[name] for name in ("search", "fetch", "add")]
    assert [row.input_tokens for row in rows] == [4, 4, 3]
    assert [row.output_tokens for row in rows] == [2, 1, 1]
    assert [row.request_count for row in rows] == [1, 2, 1]


def test_a_cost_with_more_digits_is_divided_down_to_its_last_one() -> None:
    report = UsageReport.of([paid("0.00000000000000005", tools=("a", "b"))])
    assert [row.cost_usd for row in report.by_tool.values()] == [
        Decimal("0.00000000000000003"),
        Decimal("0.00000000000000002"),
    ]


def test_several_returns_of_one_tool_are_one_share() -> None:
    report = UsageReport.of([paid("0.02", tools=("search", "search", "add"))])
    assert {row.cost_usd for row in report.by_tool.values()} == {Decimal("0.01")}
    assert report.by_tool["search"].request_count == 1


def test_the_bound_of_an_unmeasured_request_is_divided_among_its_tools_and_no_bound_stays_none() -> None:
    report = UsageReport.of([unmeasured("0.03", tools=("a", "b")), unmeasured(None, tools=("a", "b"))])
    for row in report.by_tool.values():
        assert (row.uncertain_usd, row.unmeasured_requests, row.unbounded_requests) == (
            Decimal("0.015"),
            2,
            1,
        )


def test_a_report_is_a_frozen_value_that_can_be_pickled() -> None:
    report = UsageReport.of([paid("0.01", step_id="write")])
    assert pickle.loads(pickle.dumps(report)) == report == UsageReport.of([paid("0.01", step_id="write")])
    with pytest.raises(AttributeError):
        report.total = report.by_step["write"]  # type: ignore[misc]
    assert repr(report) == "UsageReport(cost_usd=0.01, cost_complete=True, requests=1)"


# --- tables for people ---

EVIL = 'a|b`<script>alert("1")</script>`*x* _y_ [z](http://z) $1$ &amp; \\ \x1b[31m\nred'
EVIL_ON_ONE_LINE = EVIL.replace("\x1b", r"\x1b").replace("\n", r"\n")


def lines_of(report: UsageReport) -> dict[str, list[str]]:
    """The cells of the plain text by the name of their row: those of the first such row."""
    rows: dict[str, list[str]] = {}
    for line in str(report).splitlines():
        name, *cells = re.split(r" {2,}", line.strip())
        rows.setdefault(name, cells)
    return rows


def test_the_text_says_what_each_row_cost() -> None:
    spent = Tokens(input_tokens=1200, output_tokens=30, cache_read_tokens=64)
    lines = lines_of(
        UsageReport.of(
            [
                paid("0.0123", step_id="write", agent="writer", tokens=spent, tools=("search",)),
                paid("0.000001", agent="writer", use="retried"),
                paid(None, outcome="released", step_id="check"),
            ]
        )
    )
    assert lines["total"] == ["0.0123", "100.0%", "2", "1,200", "30", "64", "1 released"]
    assert lines["write"] == ["0.0123", "100.0%", "1", "1,200", "30", "64"]
    assert lines["(no step)"] == ["0.000001", "<0.1%", "1", "0", "0"]
    assert lines["check"] == ["0.00", "0.0%", "0", "0", "0", "1 released"]
    assert lines["search"] == lines["write"]
    assert lines["retried"] == lines["(no step)"]
    assert "failed" not in lines
    assert not any(line.endswith(" ") for line in lines)


def test_groups_that_tell_nothing_are_left_out_of_tables() -> None:
    text = str(UsageReport.of([paid("0.01", agent="writer")]))
    assert re.findall(r"^by \w+$", text, re.MULTILINE) == ["by agent", "by model", "by outcome"]
    assert re.findall(r"^by \w+$", str(UsageReport.of([paid("0.01", step_id="write")])), re.MULTILINE) == [
        "by step",
        "by model",
        "by outcome",
    ]


@pytest.mark.parametrize(
    ("requests", "cost", "note"),
    [
        ([paid("0.01"), paid(None)], "at least 0.01", r"Unpriced \(no price is known\): 1\.\s"),
        ([paid(None)], "unknown", r"Unpriced"),
        (
            [paid("0.01"), unmeasured("0.05")],
            "0.01 to 0.06",
            r"true\): 1\.\s+The unmeasured request costs at most 0\.05 USD more\.$",
        ),
        ([unmeasured("0.05")], "at most 0.05", r"request costs at most 0\.05 USD more\.$"),
        (
            [paid("0.01"), unmeasured(None)],
            "at least 0.01",
            r"Nothing is known to bound the cost of the unmeasured request\.$",
        ),
        (
            [unmeasured(None), unmeasured("0.05")],
            "unknown",
            r"cost of 1 of the 2 unmeasured requests; the other one costs at most 0\.05 USD more\.$",
        ),
        (
            [unmeasured("0.02"), unmeasured("0.03"), paid(None), paid(None)],
            "unknown",
            r"cost of 2 of the 4 unpriced and unmeasured requests; the other 2 cost at most 0\.05 USD more",
        ),
        (
            [unmeasured("0.02"), unmeasured("0.03")],
            "at most 0.05",
            r"The 2 unmeasured requests cost at most 0\.05 USD more\.$",
        ),
    ],
)
def test_a_cost_that_is_not_complete_never_looks_complete(
    requests: list[RequestRecord], cost: str, note: str
) -> None:
    report = UsageReport.of(requests)
    for line in ("total", "openai:gpt-5-mini", "kept"):
        assert lines_of(report)[line][0] == cost
    for text in (str(report), report.to_markdown().strip(), printed_by_rich(report)):
        assert "The cost is not complete" in text
        assert re.search(note, text)
    assert "<p>The cost is not complete" in report._repr_html_()


@pytest.mark.parametrize(
    "spent", [paid("0.01"), paid(None), unmeasured("0.01"), unmeasured(None)], ids="abcd"
)
def test_spending_that_is_no_request_has_its_rows_in_tables(spent: RequestRecord) -> None:
    report = UsageReport.of([replace(spent, kind="spend", model="search", provider="acme")])
    lines = lines_of(report)
    assert lines["acme:search"][0] == lines["kept"][0] == lines["total"][0]


def test_a_complete_cost_has_no_notes() -> None:
    report = UsageReport.of([paid("0.01")])
    for text in (str(report), report.to_markdown(), printed_by_rich(report), report._repr_html_()):
        assert "not complete" not in text
        assert "not in the cost" not in text


def test_no_text_has_control_characters_of_names() -> None:
    report = UsageReport.of([paid("0.01", agent=EVIL, tools=("\u202eevil", "\ud800"))])
    for text in (str(report), report.to_markdown(), report.to_csv(), report._repr_html_()):
        assert all(char.isprintable() for char in text.replace("\n", ""))
        assert r"\u202eevil" in text.replace("&#92;", "\\")
        text.encode()


@pytest.mark.parametrize("name", [EVIL, "look_up", "__init__", "_x", "~~x~~", "a||b", "<b>", "**x**", "`"])
def test_markdown_shows_every_name_as_it_is(name: str) -> None:
    report = UsageReport.of([paid("0.01", agent=name, step_id="write", use="retried"), paid(None)])
    rows = rows_of(report.to_markdown())
    cells = {row[0]: row[1:] for row in rows}
    assert cells[name.replace("\x1b", r"\x1b").replace("\n", r"\n")][0] == "0.01"
    assert cells["write"][:3] == ["0.01", "100.0%", "1"]
    assert {len(row) for row in rows} == {7}


def rows_of(markdown: str) -> list[list[str]]:
    """The texts of a table's cells. Nothing but text, and the titles of groups, may be in them."""
    rows: list[list[str]] = []
    in_table = False
    for token in MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(markdown):
        in_table = (in_table or token.type == "table_open") and token.type != "table_close"
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and in_table:
            parts = token.children or []
            assert {part.type for part in parts} <= {"text", "text_special", "strong_open", "strong_close"}
            rows[-1].append("".join(part.content for part in parts))
    return rows


def test_markdown_leaves_the_names_that_people_choose_readable() -> None:
    markdown = UsageReport.of([paid("0.01", agent="look_up")]).to_markdown()
    assert "| look_up | 0.01 |" in markdown
    assert "| openai:gpt-5-mini | 0.01 |" in markdown


class Cells(HTMLParser):
    """The tags and the texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag in ("td", "th", "p"):
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data


def test_notebooks_show_every_name_as_it_is() -> None:
    page = Cells(UsageReport.of([paid("0.01", agent=EVIL), paid(None)])._repr_html_())
    assert page.tags == {"table", "thead", "tbody", "tr", "th", "td", "p"}
    cells = [text.strip() for text in page.texts]
    assert cells[cells.index(EVIL_ON_ONE_LINE) + 1] == "0.01"
    assert cells[cells.index("total") + 1] == "at least 0.01"


def printed_by_rich(report: UsageReport, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(report)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


def test_rich_shows_every_name_as_it_is() -> None:
    text = printed_by_rich(UsageReport.of([paid("0.01", agent="[red]writer[/red]", step_id=EVIL)]))
    assert re.search(r"^\[red\]writer\[/red\] +0\.01 +100\.0% +1 +0 +0$", text, re.MULTILINE)
    assert EVIL_ON_ONE_LINE in text
    assert "by outcome" in text


def test_rich_keeps_numbers_whole_in_a_narrow_terminal() -> None:
    spent = Tokens(input_tokens=123_456, output_tokens=1_234, cache_read_tokens=1_000)
    requests = [
        paid("0.0000123", tokens=spent, step_id="a step with a very long name", agent="x" * 60),
        paid(None),
        unmeasured(None, step_id="cut"),
        paid(None, outcome="released"),
    ]
    text = printed_by_rich(UsageReport.of(requests), width=80)
    assert max(map(len, text.splitlines())) <= 80
    for number in ("0.0000123", "100.0%", "123,456", "1,234", "1,000"):
        assert number in text


def test_only_printing_with_rich_needs_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    report = UsageReport.of([paid("0.01")])
    for module in ("rich.console", "rich.table", "rich.text"):
        monkeypatch.setitem(sys.modules, module, None)
    assert str(report)
    assert report.to_markdown()
    assert report._repr_html_()
    with pytest.raises(ImportError):
        report.__rich__()


# --- data for programs ---


def test_what_has_no_price_is_named_in_every_form_and_cannot_break_it() -> None:
    report = UsageReport.of([paid("0.01", unpriced_units=("web_searches", "<b>|x"), bound_usd=Decimal(1))])
    assert lines_of(report)["total"][0] == "0.01 to 1.00"
    assert "no price is known: web_searches, <b>|x" in str(report)
    assert "web_searches, &#60;b&#62;&#124;x" in report.to_markdown()
    assert "web_searches, &lt;b&gt;|x" in report._repr_html_()
    assert json.loads(report.to_json())["total"]["unpriced_units"] == "web_searches, <b>|x"


def test_a_report_says_where_bills_differ_from_prices() -> None:
    billed = paid("0.03", cost_source="stated", stated_usd=Decimal("0.03"), priced_usd=Decimal("0.01"))
    assert "Providers billed 0.02 USD more than the prices known here" in str(UsageReport.of([billed]))
    assert "bills" not in str(UsageReport.of([replace(billed, priced_usd=Decimal("0.0300001"))]))


REQUESTS = [
    paid("0.0000001", step_id="write", agent="writer", tokens=Tokens(input_tokens=10, cache_write_tokens=4)),
    paid("0.03", step_id="read", agent="reader", tools=("search", "fetch")),
    unmeasured("0.05", step_id="read"),
    paid(None, outcome="released"),
]


def test_json_has_everything_with_exact_amounts() -> None:
    report = UsageReport.of(REQUESTS)
    data = json.loads(report.to_json())
    assert list(data) == [
        "version",
        "currency",
        "cost_complete",
        "stated_over_priced_usd",
        "total",
        *(
            f"by_{group}"
            for group in ("step", "agent", "model", "tool", "variant", "tenant", "tag", "outcome")
        ),
    ]
    assert (data["version"], data["currency"], data["cost_complete"]) == (3, "USD", False)
    assert data["total"] == {
        "name": "total",
        "request_count": 3,
        "failed_requests": 1,
        "input_tokens": 10,
        "output_tokens": 0,
        "cache_read_tokens": 0,
        "cache_write_tokens": 4,
        "cost_usd": "0.0300001",
        "cost_complete": False,
        "unpriced_requests": 0,
        "unpriced_units": "",
        "unmeasured_requests": 1,
        "uncertain_usd": "0.05",
        "unbounded_requests": 0,
        "committed_usd": "0.0800001",
        "share": 1.0,
    }
    assert [(row["name"], row["cost_usd"]) for row in data["by_step"]] == [
        ("read", "0.03"),
        ("write", "0.0000001"),
        ("(no step)", "0"),
    ]
    assert [row["cost_usd"] for row in data["by_tool"]] == ["0.015", "0.015"]
    assert [row["name"] for row in data["by_outcome"]] == ["kept", "retried", "failed", "released"]


def test_json_keeps_names_as_they_are() -> None:
    data = json.loads(UsageReport.of([paid("100", agent=EVIL), paid("0", agent="=1+1")]).to_json())
    assert [row["name"] for row in data["by_agent"]] == [EVIL, "=1+1"]
    assert data["total"]["cost_usd"] == "100"


def test_csv_has_the_same_rows_as_json() -> None:
    report = UsageReport.of(REQUESTS)
    data = json.loads(report.to_json())
    expected = [("total", data["total"])]
    for group in report.groups:
        expected += [(group, row) for row in data[f"by_{group}"]]
    read = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert len(read) == len(expected) == report.to_csv().count("\n") - 1
    for line, (group, row) in zip(read, expected, strict=True):
        assert line == {"group": group} | {name: cell(value) for name, value in row.items()}
    assert UsageReport.of([]).to_csv().splitlines()[1].endswith(",")


def cell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-1+1", "'-1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", r"\t=1"),
        ("\r=1", r"\r=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a;=1", "a;'=1"),
        ('a",=1', "a\",'=1"),
        ("gpt-5=mini", "gpt-5=mini"),
        ("two\nlines", r"two\nlines"),
    ],
)
def test_no_name_in_csv_is_a_formula(name: str, written: str) -> None:
    requests = [paid("0.01", model=name, provider="", agent=name, step_id=name, tools=(name,))]
    read = list(csv.DictReader(io.StringIO(UsageReport.of(requests).to_csv())))
    for line in read:
        assert line["name"] == (
            written if line["group"] in ("step", "agent", "model", "tool") else line["name"]
        )
    assert sum(line["name"] == written for line in read) == 4


# --- where reports come from ---


@step
async def twice(ctx: StepContext) -> str:
    await ctx.run(paid_agent(100, name="draft"), "hello")
    ctx.record_usage(model="search-engine", cost_usd="0.005")
    return (await ctx.run(paid_agent(200, name="final"), "hello")).output


async def test_a_run_a_step_and_a_response_report_what_they_spent() -> None:
    steps = {"write": twice, "check": paid_agent(50, name="checker").as_step("check it")}
    result = await Pipeline("book", steps, output_step="write").execute()
    report = result.usage.report()
    assert report.total.cost_usd == result.usage.cost_usd == Decimal("0.00535")
    assert {name: row.cost_usd for name, row in report.by_step.items()} == {
        "write": Decimal("0.0053"),
        "check": Decimal("0.00005"),
    }
    assert {name: row.cost_usd for name, row in report.by_agent.items()} == {
        "(no agent)": Decimal("0.005"),
        "final": Decimal("0.0002"),
        "draft": Decimal("0.0001"),
        "checker": Decimal("0.00005"),
    }
    assert list(report.by_model) == ["search-engine", "function:paid"]
    assert result.usage.steps["write"].report().total.cost_usd == Decimal("0.0053")


async def test_a_response_reports_every_request_of_its_call() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        first = len(messages) == 1
        part = ToolCallPart("now") if first else TextPart("noon")
        return ModelResponse(parts=[part], usage=RequestUsage(input_tokens=10 if first else 30))

    agent = FastroAgent(
        FunctionModel(respond, model_name="paid"),
        name="clock",
        tools=[now],
        cost_calculator=TOKEN_IS_MICROCENT,
    )
    response = await agent.run("What time is it?")
    report = response.report()
    assert report.total.cost_usd == response.cost_usd == Decimal("0.00004")
    assert report.by_agent["clock"].request_count == 2


def now() -> str:
    """The time."""
    return "12:00"
