import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    CachePoint,
    CompactionPart,
    DocumentUrl,
    FilePart,
    ImageUrl,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    RetryFeedbackPart,
    RetryInfo,
    SpeechPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage
from support.bodies import body_of, chat_model, claude_model, responses_model, strings_in
from support.cookbook import function_tokens, message_tokens, tokens
from support.documents import pdf
from support.examples import examples
from support.pictures import jpeg

from fastroai.usage.bounding.input_bounds import InputRules, most_input, unknown_input
from fastroai.usage.bounding.pdf_sizes import PDF_SIZES
from fastroai.usage.bounding.pieces import pieces
from fastroai.usage.bounding.tokenizers import Count, bytes_of
from fastroai.usage.facts.allowances import GATEWAY, OTHER
from fastroai.usage.facts.documented import all_facts
from fastroai.usage.prices.hosts import Host

ANTHROPIC = all_facts()["anthropic"].allowances
OPENAI = all_facts()["openai"].allowances

CHAT, RESPONSES, CLAUDE = chat_model(), responses_model(), claude_model()


def gemini(name: str) -> GoogleModel:
    return GoogleModel(name, provider=GoogleProvider(api_key="none"))


def ask(*content: UserContent) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(list(content))])]


def most(
    messages: list[ModelMessage],
    parameters: ModelRequestParameters | None = None,
    *,
    model: Model = CHAT,
    count: Count = tokens,
    settings: dict[str, object] | None = None,
) -> int | None:
    for piece in pieces(messages):
        if isinstance(piece.item, BinaryContent) and piece.item.media_type == "application/pdf":
            PDF_SIZES.prepare(piece.item.data)
    rules = InputRules.of(Host.of(model), count, settings)
    parameters = parameters or ModelRequestParameters()
    unknown = unknown_input(pieces(messages), parameters)
    return most_input(rules, messages, settings or {}, parameters, unknown=unknown).tokens


def known(*args: Any, **options: Any) -> int:
    found = most(*args, **options)
    assert found is not None
    return found


class TestTexts:
    def test_a_message_is_its_tokens_and_what_delimits_them(self) -> None:
        allowed = OPENAI.request + OPENAI.message
        assert most(ask("What is the capital of France?")) == allowed + 7  # the API reports 13 or 14 in all
        assert most(ask("hello")) == allowed + 1

    def test_without_a_tokenizer_it_is_bytes(self) -> None:
        short = most(ask("x"), count=bytes_of, model=CLAUDE)
        assert short == ANTHROPIC.request + ANTHROPIC.message + 1

    @pytest.mark.parametrize("letter", ["é", "漢", "½", "ﷺ", "😀"])
    def test_letters_count_as_the_bytes_that_they_can_become(self, letter: str) -> None:
        longest = max(len(shape.encode()) for shape in (letter, unicodedata.normalize("NFKD", letter)))
        before, after = (known(ask(text), count=bytes_of) for text in ("é", "é" + letter * 100))
        assert after == before + 100 * longest

    @pytest.mark.parametrize(
        "more",
        [
            [ModelRequest(parts=[SystemPromptPart("s" * 500)])],
            [ModelRequest(parts=[UserPromptPart("t" * 500)])],
            [ModelRequest(parts=[UserPromptPart([TextContent("t" * 500), CachePoint()])])],
            [ModelResponse(parts=[TextPart("t" * 500)])],
            [ModelResponse(parts=[ThinkingPart("t" * 500, provider_name="other")])],
            [ModelResponse(parts=[ToolCallPart("f", {"x": "y" * 500})])],
            [ModelResponse(parts=[ToolCallPart("f" * 500, {})])],
            [ModelRequest(parts=[ToolReturnPart("f", "y" * 500)])],
            [ModelRequest(parts=[ToolReturnPart("f", {"x": "y" * 500})])],
            [ModelRequest(parts=[ToolReturnPart("f", "y" * 500, outcome="failed")])],
            [ModelRequest(parts=[RetryFeedbackPart("y" * 500, retry=RetryInfo("model_retry"))])],
            [ModelRequest(parts=[CompactionPart("y" * 500)])],
        ],
    )
    def test_everything_in_the_messages_counts(self, more: list[ModelMessage]) -> None:
        before, after = known(ask("hello"), count=bytes_of), known(ask("hello") + more, count=bytes_of)
        assert before + 500 <= after <= before + 2_000

    def test_texts_of_one_message_count_as_they_may_be_joined(self) -> None:
        apart = ["hnya", "novation Césobre"]  # 3 tokens more where they touch
        assert tokens("".join(apart)) == sum(map(tokens, apart)) + 3
        assert most(ask(*apart)) == OPENAI.request + 2 * OPENAI.message + tokens("".join(apart))

    def test_ids_of_calls_count_where_a_model_may_read_them(self) -> None:
        def called(model: Model, call_id: str) -> int:
            call = ModelResponse(parts=[ToolCallPart("f", {}, tool_call_id=call_id)])
            result = ModelRequest(parts=[ToolReturnPart("f", "r", tool_call_id=call_id)])
            return known([call, result], model=model, count=bytes_of)

        assert called(CLAUDE, "i" * 50) == called(CLAUDE, "i") + 2 * 49
        assert called(CHAT, "i" * 50) == called(CHAT, "i")

    def test_content_counts_as_it_is_sent_with_the_names_it_is_sent_under(self) -> None:
        class Short(BaseModel):
            x: int = Field(serialization_alias="a_much_longer_name_" * 10)

        plain = known([ModelRequest(parts=[ToolReturnPart("f", {"x": 1})])], count=bytes_of)
        aliased = known([ModelRequest(parts=[ToolReturnPart("f", Short(x=1))])], count=bytes_of)
        assert aliased >= plain + 150

    def test_a_provider_that_nothing_is_known_of_may_add_more(self) -> None:
        class Groq(OpenAIChatModel):
            """Has the name of the other class, which needs an SDK of its own."""

            @property
            def system(self) -> str:
                return "groq"

        groq = Groq("llama", provider=OpenAIProvider(base_url="https://api.groq.com", api_key="none"))
        assert most(ask("x"), model=groq, count=bytes_of) == OTHER.request + OTHER.message + 1


class TestInstructions:
    def test_those_of_the_last_requests_count_once(self) -> None:
        def conversation(*instructions: str) -> list[ModelMessage]:
            return [ModelRequest(parts=[UserPromptPart("hi")], instructions=each) for each in instructions]

        without = known(conversation("", "", ""), count=bytes_of)
        alike = known(conversation("i" * 1000, "i" * 1000, "i" * 1000), count=bytes_of)
        assert alike == without + 1000 + OPENAI.message
        assert known(conversation("i" * 1000, "j", ""), count=bytes_of) == without + 1 + OPENAI.message

    def test_parts_for_this_request_count_instead(self) -> None:
        messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("hi")], instructions="old" * 99)]
        parts = [InstructionPart(content="a" * 10), InstructionPart(content="b" * 10)]
        found = known(messages, ModelRequestParameters(instruction_parts=parts), count=bytes_of)
        assert (
            found
            == OPENAI.request + OPENAI.message + 2 + len("a" * 10 + "\n\n" + "b" * 10) + 2 * OPENAI.message
        )


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class TestDefinitions:
    def test_tools_count_with_a_hidden_prompt(self) -> None:
        tool = ToolDefinition(name="find", description="d" * 500, parameters_json_schema=SCHEMA)
        before = known(ask("hi"), count=bytes_of)
        one = known(ask("hi"), ModelRequestParameters(function_tools=[tool]), count=bytes_of)
        two = known(
            ask("hi"), ModelRequestParameters(function_tools=[tool], output_tools=[tool]), count=bytes_of
        )
        assert one >= before + 500 + len(json.dumps(SCHEMA, separators=(",", ":"))) + OPENAI.tools
        assert two - one == one - before - OPENAI.tools

    def test_a_tool_that_is_told_of_later_may_be_defined_twice(self) -> None:
        tool = ToolDefinition(name="find", parameters_json_schema=SCHEMA)
        visible = ModelRequestParameters(function_tools=[tool], tool_visibility={"find": "visible"})
        hidden = ModelRequestParameters(function_tools=[tool], tool_visibility={"find": "deferred"})
        without = known(ask("hi")) + OPENAI.tools
        assert known(ask("hi"), hidden) - without == 2 * (known(ask("hi"), visible) - without)

    def test_the_schema_of_the_answer_counts_where_it_is_sent(self) -> None:
        schema = OutputObjectDefinition(name="Place", json_schema=SCHEMA)
        native = ModelRequestParameters(output_mode="native", output_object=schema)
        prompted = ModelRequestParameters(output_mode="prompted", output_object=schema)
        before = known(ask("hi"))
        assert known(ask("hi"), native) >= before + OPENAI.output_format + tokens(json.dumps(SCHEMA))
        assert known(ask("hi"), prompted) == before + OPENAI.output_format  # it is in the instructions


class TestThoughts:
    """What models thought before comes back in a form that tells nothing of its size."""

    def history(self, part: ModelResponsePart, **usage: int) -> list[ModelMessage]:
        return [*ask("hello"), ModelResponse(parts=[part], usage=RequestUsage(**usage)), *ask("go on")]  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "part",
        [
            ThinkingPart("", id="rs_1", provider_name="anthropic"),
            ThinkingPart("", signature="s"),
            ToolCallPart("f", {}, provider_name="google", provider_details={"thought_signature": "s"}),
            TextPart("a", provider_name="openai", provider_details={"encrypted": "e"}),
        ],
    )
    def test_they_are_no_more_than_what_was_billed_for_them(self, part: ModelResponsePart) -> None:
        few, many = (known(self.history(part, output_tokens=n), model=CLAUDE) for n in (1_000, 9_000))
        assert many == few + 8_000
        assert most(self.history(part), model=CLAUDE) is None

    def test_openai_tells_how_much_was_reasoning(self) -> None:
        part = ThinkingPart("", id="rs_1", provider_name="openai", signature="s")
        found = known(self.history(part, output_tokens=1_000, output_reasoning_tokens=100), model=RESPONSES)
        without = known(self.history(TextPart(""), output_tokens=1_000), model=RESPONSES)
        assert found - without <= 250
        assert known(self.history(part, output_tokens=1_000), model=RESPONSES) >= without + 1_000

    def test_others_thoughts_are_text(self) -> None:
        part = ThinkingPart("I think", provider_name="anthropic")
        assert most(self.history(part), model=RESPONSES) is not None

    @pytest.mark.parametrize("details", [{"phase": "final_answer"}, {"logprobs": []}, {}, None])
    def test_what_openai_tells_of_its_texts_is_no_thought(self, details: dict[str, Any] | None) -> None:
        part = TextPart("hello", provider_name="openai", provider_details=details)
        assert known(self.history(part, output_tokens=900)) == known(self.history(TextPart("hello")))


PICTURE = BinaryContent(b"x" * 90_000, media_type="image/png")
LINK = ImageUrl("https://example.com/x.png")


class TestImages:
    @pytest.mark.parametrize("image", [PICTURE, LINK])
    def test_they_count_alike_inline_and_by_url(self, image: UserContent) -> None:
        assert known(ask("look", image), model=CLAUDE) == known(ask("look"), model=CLAUDE) + 1_600 + 16
        assert known(ask("look", image)) == known(ask("look")) + 9_954 + 8

    def test_the_level_of_detail_counts(self) -> None:
        low = ImageUrl("https://example.com/x.png", vendor_metadata={"detail": "low"})
        assert known(ask(low), model=chat_model("gpt-4o")) == OPENAI.request + 85 + OPENAI.message

    def test_those_that_a_tool_returns_count(self) -> None:
        def returned(content: object) -> int:
            return known([ModelRequest(parts=[ToolReturnPart("f", content)])], model=CLAUDE)

        assert returned(["see", PICTURE]) >= returned("see") + 1_600
        assert returned(PICTURE) >= 1_600

    def test_where_no_rule_is_documented_they_have_no_bound(self) -> None:
        assert most(ask(LINK), model=responses_model("gpt-6-sol")) is None

    @pytest.mark.parametrize(("model", "tokens"), [(CLAUDE, 1_369), (responses_model("gpt-5.5"), 1_229)])
    def test_the_size_of_one_that_is_sent_along_counts(self, model: Model, tokens: int) -> None:
        photo = BinaryContent(jpeg(1_024, 1_024), media_type="image/jpeg")
        without = known(ask("look"), model=model)
        assert tokens <= known(ask("look", photo), model=model) - without <= tokens + 64

    def test_gemini_counts_by_the_resolution_of_the_file_or_of_the_request(self) -> None:
        gemini = GoogleModel("gemini-3.5-flash", provider=GoogleProvider(api_key="none"))
        low = ImageUrl("https://example.com/x.png", vendor_metadata={"media_resolution": {"level": "LOW"}})
        highest = {"google_video_resolution": "MEDIA_RESOLUTION_ULTRA_HIGH"}

        def tokens_of(image: UserContent, settings: dict[str, object] | None = None) -> int:
            without = known(ask("look"), model=gemini)
            return known(ask("look", image), model=gemini, settings=settings) - without

        allowed = GATEWAY.message
        assert tokens_of(LINK) == 1_120 + allowed
        assert tokens_of(low) == 280 + allowed
        assert tokens_of(LINK, highest) == 2_240 + allowed
        assert tokens_of(low, highest) == 280 + allowed

    @pytest.mark.parametrize(
        ("model", "page", "two_pages"),
        [
            (claude_model("claude-opus-4-8"), 4_800, 2 * 4_800 + 3_000 + 9_000),
            (claude_model("claude-sonnet-4-5"), 1_600, 2 * 1_600 + 3_000 + 9_000),
            (responses_model("gpt-5.2"), 7_373, 2 * 7_373 + 3_000 + 9_000),
            (gemini("gemini-2.5-flash"), 4_386, 2 * 4_386 + 3_000 + 9_000),
            (gemini("gemini-3.5-flash"), 560, 2 * 560),
        ],
    )
    def test_the_pages_of_a_pdf_count_as_images_with_text(
        self, model: Model, page: int, two_pages: int
    ) -> None:
        allowed = Host.of(model).allowances.message
        few = BinaryContent(pdf("Hello"), media_type="application/pdf")
        full = BinaryContent(pdf("Hello", "x" * 9_000), media_type="application/pdf")
        least_text = 0 if page == 560 else 3_000
        assert known(ask(few), model=model) - known(ask(), model=model) == page + least_text + allowed
        assert known(ask(full), model=model) - known(ask(), model=model) == two_pages + allowed

    @pytest.mark.parametrize(
        "of_unknown_size",
        [
            BinaryContent(b"%PDF-1.4 /Count 1", media_type="application/pdf"),
            DocumentUrl("https://example.com/x.pdf"),
        ],
    )
    def test_a_pdf_that_cannot_be_read_counts_as_the_largest(
        self, of_unknown_size: BinaryContent | DocumentUrl
    ) -> None:
        model = gemini("gemini-3.5-flash")
        largest = 560_000 + GATEWAY.message
        assert known(ask(of_unknown_size), model=model) == known(ask(), model=model) + largest
        assert most(ask(of_unknown_size), model=claude_model("claude-opus-4-8")) is None

    def test_files_of_text_count_as_text(self) -> None:
        text = BinaryContent(b"a,b\n" * 500, media_type="text/csv")
        without = known(ask("read"), model=CLAUDE)
        assert without + 2_000 < known(ask("read", text), model=CLAUDE) < without + 2_500


class TestWhatIsNotInTheBody:
    @pytest.mark.parametrize(
        "messages",
        [
            ask(AudioUrl("https://example.com/x.mp3")),
            ask(DocumentUrl("https://example.com/x.pdf")),
            ask(BinaryContent(b"x", media_type="application/pdf")),
            ask(UploadedFile(file_id="file-1", provider_name="openai")),
            [ModelRequest(parts=[ToolReturnPart("f", [BinaryContent(b"x", media_type="audio/wav")])])],
            [ModelRequest(parts=[SpeechPart(speaker="user")])],
            [ModelResponse(parts=[FilePart(PICTURE)])],
            [ModelResponse(parts=[NativeToolCallPart("web_search", {})])],
            [ModelResponse(parts=[CompactionPart(provider_name="openai", provider_details={"e": "c"})])],
            [ModelRequest(parts=[ToolReturnPart("f", object())])],
        ],
    )
    def test_it_has_no_bound(self, messages: list[ModelMessage]) -> None:
        assert most(messages) is None

    def test_a_file_of_an_unknown_kind_has_no_bound(self) -> None:
        assert most(ask(DocumentUrl("https://example.com/x.unheardof"))) is None

    @pytest.mark.parametrize("setting", ["openai_previous_response_id", "google_cached_content"])
    def test_what_the_provider_remembers_has_no_bound(self, setting: str) -> None:
        assert most(ask("hi"), settings={setting: "x"}) is None

    def test_what_cannot_be_sent_has_none(self) -> None:
        assert most(ask("\udcff"), count=bytes_of) is None


words = st.sampled_from(
    ["The", "city", "of", "Paris", " ", "\n", "12", "345", '"', "'s", "é", "漢", "kiểu", "{", "<|im_end|>"]
)
texts = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=30), st.lists(words, max_size=10).map("".join)
)
some_text = texts.filter(lambda text: bool(text.strip()))
names = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
arguments = st.dictionaries(names, st.one_of(texts, st.integers(), st.lists(texts, max_size=2)), max_size=3)
tools = st.lists(
    st.builds(
        lambda name, description, properties: ToolDefinition(
            name=name,
            description=description,
            parameters_json_schema={
                "type": "object",
                "properties": {
                    key: {"type": "string", "description": text} for key, text in properties.items()
                },
            },
        ),
        names,
        st.none() | texts,
        st.dictionaries(names, texts, max_size=3),
    ),
    max_size=3,
    unique_by=lambda tool: tool.name,
)


@st.composite
def conversations(draw: st.DrawFn) -> list[ModelMessage]:
    messages: list[ModelMessage] = [
        ModelRequest(
            parts=[
                *[SystemPromptPart(text) for text in draw(st.lists(some_text, max_size=2))],
                UserPromptPart(draw(st.one_of(some_text, st.lists(some_text, min_size=1, max_size=3)))),
            ]
        )
    ]
    for turn in range(draw(st.integers(0, 3))):
        calls = [
            ToolCallPart(draw(names), draw(arguments), tool_call_id=f"{turn}-{number}")
            for number in range(draw(st.integers(0, 2)))
        ]
        said = [TextPart(text) for text in draw(st.lists(some_text, max_size=2))]
        results = [
            ToolReturnPart(call.tool_name, draw(st.one_of(texts, arguments)), tool_call_id=call.tool_call_id)
            for call in calls
        ]
        messages.append(ModelResponse(parts=[*said, *calls]))
        messages.append(ModelRequest(parts=[*results, UserPromptPart(draw(some_text))]))
    return messages


slow = settings(max_examples=examples(30))


@pytest.mark.slow
@given(conversations(), tools, st.lists(some_text, max_size=2))
@slow
async def test_no_request_to_openai_has_more_tokens(
    messages: list[ModelMessage], tools: list[ToolDefinition], instructions: list[str]
) -> None:
    parts = [InstructionPart(content=text) for text in instructions]
    for model in (CHAT, RESPONSES):
        parameters = ModelRequestParameters(function_tools=tools, instruction_parts=parts)
        body = await body_of(model, messages, parameters=parameters)
        prepared = model.prepare_request(None, parameters)[1]
        sent = model.prepare_messages(messages, parameters)
        given_messages = list(body.get("messages") or body["input"])
        if "instructions" in body:
            given_messages.append({"role": "developer", "content": body["instructions"]})
        exact = message_tokens(given_messages)
        exact += function_tokens([tool.get("function", tool) for tool in body.get("tools", [])])
        found = known(sent, prepared, model=model)
        assert exact <= found
        assert found <= known(sent, prepared, model=model, count=bytes_of)


@pytest.mark.slow
@given(conversations(), tools, st.lists(some_text, max_size=2))
@slow
async def test_the_bound_covers_every_byte_that_is_sent_to_anthropic(
    messages: list[ModelMessage], tools: list[ToolDefinition], instructions: list[str]
) -> None:
    parts = [InstructionPart(content=text) for text in instructions]
    parameters = ModelRequestParameters(function_tools=tools, instruction_parts=parts)
    body = await body_of(CLAUDE, messages, parameters=parameters)
    prepared = CLAUDE.prepare_request(None, parameters)[1]
    sent = [body["messages"], body.get("system"), body.get("tools")]
    size = sum(len(text.encode()) for text in strings_in(sent))
    found = known(CLAUDE.prepare_messages(messages, parameters), prepared, model=CLAUDE, count=bytes_of)
    assert size <= found
