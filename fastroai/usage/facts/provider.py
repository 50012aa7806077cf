"""What a provider documents, as the files in `data` have it: one a provider, read when it is first needed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fastroai.errors import ConfigurationError
from fastroai.usage.facts.allowances import GATEWAY, Allowances
from fastroai.usage.facts.documents import PagesWithText, PdfRule
from fastroai.usage.facts.images import ImageRule
from fastroai.usage.facts.source import STRICT, NamedSource

_TABLES: Final = ("sources", "images", "pdfs")
"""Tables whose lines others name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The documented facts of some models.

    A fact that a line leaves out is not documented, or could not be checked, and has no bound of its own: the
    context window is taken instead.
    """

    __pydantic_config__ = STRICT
    names: re.Pattern[str]
    """A pattern of the whole name, without the date of a snapshot."""
    window: int | None = None
    """The most input tokens, where genai-prices does not have the number, or rounds it."""
    output_tokens: int | None = None
    """The most tokens of an answer, thinking included."""
    images: ImageRule | None = None
    pdf: PdfRule | None = None
    unknown: str | None = None
    """Why this line has no limits for input and output; `None` if it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models of a maker."""

    __pydantic_config__ = STRICT
    source: NamedSource
    """The page with the limits of models."""
    first_party: re.Pattern[str] | None = None
    """A pattern of the beginnings of the names of models that the maker serves itself."""
    snapshot: re.Pattern[str]
    """A pattern of the endings that names of snapshots add to the name of a model."""
    pages_are_images: NamedSource | None = None
    """The page that documents that each page of a PDF is read as an image of any size, and as text."""
    lines: tuple[ModelFacts, ...]
    """The first line that fits a name counts."""

    def find(self, model: str) -> ModelFacts | None:
        """Return the facts of a model; `None` if there is no line for it."""
        for line in self.lines:
            if re.fullmatch(f"(?:{line.names.pattern}){self.snapshot.pattern}", model):
                return replace(line, pdf=line.pdf or self._pdf(line.images))
        return None

    def _pdf(self, images: ImageRule | None) -> PdfRule | None:
        if images is None or self.pages_are_images is None:
            return None
        sizes = [images.most_tokens(None, detail) for detail in ("auto", "high", "original")]
        return PagesWithText(image=max(one for one in sizes if one is not None), source=self.pages_are_images)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionalPrice:
    """The price of some models' tokens at some hosts, as a multiple of their list prices."""

    __pydantic_config__ = STRICT
    hosts: re.Pattern[str]
    """A pattern of the whole host name."""
    models: re.Pattern[str] = re.compile("")
    """A pattern of the beginning of the model's name."""
    factor: Decimal | None = None
    """The factor that applies; `None` if a premium may apply, and the request does not tell."""
    most: Decimal | None = None
    """The highest factor that can apply, where it is not `factor`; `None` if that is not documented."""
    source: NamedSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTiers:
    """Names that a provider gives to its service tiers."""

    __pydantic_config__ = STRICT
    listed: frozenset[str]
    """Tiers that are billed at plain list prices."""
    flexible: frozenset[str] = frozenset()
    """Tiers that are billed at list prices at most."""
    dearer: frozenset[str]
    are_kept: bool = False
    """Whether a request that names a tier is never billed at a faster one. A request that names none has the
    tier of its project."""
    source: NamedSource

    @property
    def standard(self) -> frozenset[str]:
        """Service tiers that the provider never bills above its list prices."""
        return self.listed | self.flexible


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeImages:
    """Images that some models make, and the most tokens that each is billed as."""

    __pydantic_config__ = STRICT
    names: re.Pattern[str]
    tokens: dict[str, dict[str, int]]
    """Output tokens of one image, by quality, then by size."""
    reference_tokens: int | None = None
    """The most input tokens of an image to edit, at high fidelity; `None` if that is not documented."""
    sources: tuple[NamedSource, ...]

    def most_tokens(self, quality: object, size: object) -> int | None:
        """Return the most output tokens of one image; `None` if images of this quality and size have no line.

        A quality or size of `None` or `auto` leaves the choice to the provider, so the largest counts.
        """
        return max(
            (
                tokens
                for each, sizes in self.tokens.items()
                for shape, tokens in sizes.items()
                if quality in (None, "auto", each) and size in (None, "auto", shape)
            ),
            default=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CountEndpoint:
    """The endpoint that counts the input of a request for free, as PydanticAI's `count_tokens` asks it."""

    __pydantic_config__ = STRICT
    hosts: re.Pattern[str] | None = None
    """A pattern of the hosts that have it; `None`: the hosts of the provider."""
    leaves_out: frozenset[str] = frozenset()
    """The kinds of input (`InputPart.kind`) that are not in its count, as they are not sent to it."""
    margin: Decimal = Decimal("1.1")
    """The factor on a count. With it, and with the tokens that the provider may add to each request
    (`Allowances.request`), a count stands for a bound.

    Providers document smaller differences: none (OpenAI, Bedrock), or "a small amount" (Anthropic). A tenth
    is more than any difference that was seen, and leaves a bound that is still near the bill.
    """
    sources: tuple[NamedSource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """The usual size of what is sent to some models. It is part of expectations, and of no bound."""

    __pydantic_config__ = STRICT
    names: re.Pattern[str]
    bytes_per_token: Decimal
    """Bytes of English text, or of JSON, for one token."""
    tools: int = 0
    """Tokens of the prompt that explains tools, once for each request that has any."""
    page: int
    """Tokens of a page of a PDF that is full of text."""
    sources: tuple[NamedSource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFacts:
    """What a provider documents."""

    __pydantic_config__ = STRICT
    hosts: tuple[str, ...] = ()
    """The hosts of the provider's own API, if its rules are documented. One that begins with a point or a
    hyphen is the end of a host's name."""
    allowances: Allowances = GATEWAY
    """The allowances at these hosts."""
    search_rounds: int | None = None
    """The most rounds in which the model is asked in one request with tools of the provider's own; `None` if
    nothing limits them. In each round it may read a full context window."""
    search_sources: tuple[NamedSource, ...] = ()
    cache_writes: NamedSource | None = None
    """The page that documents that only searches write to the cache unasked, and that an entry lasts 5
    minutes unless the request asks for an hour."""
    same_prefix: NamedSource | None = None
    """The page that documents that the same beginning of a request has the same tokens each time."""
    service_tiers: ServiceTiers | None = None
    count_endpoint: CountEndpoint | None = None
    geographies: Mapping[str, Decimal] = field(default_factory=dict)
    """The factor on list prices for each value of `inference_geo`."""
    regional_prices: tuple[RegionalPrice, ...] = ()
    """The first line that fits a host and a model counts. Other hosts are not known to have premiums."""
    models: Models | None = None
    made_images: tuple[MadeImages, ...] = ()
    priors: tuple[Prior, ...] = ()
    """The first line that fits the name of a model counts."""


@cache
def _adapter() -> TypeAdapter[ProviderFacts]:
    return TypeAdapter(ProviderFacts)


def read_facts(name: str, text: str) -> ProviderFacts:
    """Read the text of a file.

    Raises:
        ConfigurationError: the text is no TOML, or not as `ProviderFacts` says: with the name of the file,
            the line or key, and what is expected there.
    """
    try:
        data = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(name, ..., f"valid TOML: {error}") from error
    tables = {table: data.pop(table, {}) for table in _TABLES}
    try:
        return _adapter().validate_python(data, context=tables)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ConfigurationError(f"{name}: {key}", first["input"], first["msg"]) from error
