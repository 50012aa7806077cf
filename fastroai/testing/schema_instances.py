"""JSON that fits a JSON Schema, as small as possible, and JSON that does not fit."""

import json
import re
from collections.abc import Callable, Set
from fractions import Fraction
from operator import ge, gt, le, lt
from typing import Any

from fastroai.testing.requests import JsonObject

_FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "PT0S",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "uuid1": "00000000-0000-1000-8000-000000000000",
    "uuid3": "00000000-0000-3000-8000-000000000000",
    "uuid4": "00000000-0000-4000-8000-000000000000",
    "uuid5": "00000000-0000-5000-8000-000000000000",
    "email": "a@example.com",
    "name-email": "a@example.com",
    "uri": "https://example.com/",
    "multi-host-uri": "https://example.com/",
    "ipv4": "127.0.0.1",
    "ipv4network": "127.0.0.0/8",
    "ipv4interface": "127.0.0.1/8",
    "ipv6": "::1",
    "ipv6network": "::/128",
    "ipv6interface": "::1/128",
    "ipvanyaddress": "127.0.0.1",
    "ipvanynetwork": "127.0.0.0/8",
    "ipvanyinterface": "127.0.0.1/8",
    "json-string": "null",
}
"""One string for each format that pydantic writes into schemas and that not every string fits."""

_TYPE_OF_KEYWORD = {
    "properties": "object",
    "additionalProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minLength": "string",
    "pattern": "string",
    "format": "string",
    "minimum": "number",
}

_OF_EACH_TYPE = {
    "object": {"wrong": True},
    "string": "wrong",
    "array": ["wrong"],
    "null": None,
    "number": 1.5,
}
"""A value of each type of JSON but booleans, which pydantic takes for numbers, too."""


class NoInstanceError(ValueError):
    """No instance could be found for a schema."""


class TooLargeError(NoInstanceError):
    """An instance would take more memory than a test should use."""


_MOST_VALUES = 100_000
_MOST_CHARACTERS = 1_000_000


def smallest_instance(schema: JsonObject) -> object:
    """Return the smallest JSON value that this module finds for `schema`; the same one every time.

    Optional properties are left out, arrays are as short as possible, and numbers near zero. Of several
    alternatives, the one with the shortest JSON text is taken.

    Raises:
        NoInstanceError: for a pattern that no simple string matches, a schema without a finite instance,
            or bounds that exclude everything.
    """
    try:
        return _Filler(schema).fill(schema)
    except RecursionError:
        raise NoInstanceError("the schema is nested too deeply, or contains itself without an end") from None
    except (LookupError, TypeError, AttributeError) as error:
        raise NoInstanceError(f"it is not a valid JSON Schema: {error!r}") from error


def unfit_instance(schema: JsonObject) -> JsonObject:
    """Return a JSON object that does not fit `schema`: every property has a value of the wrong type.

    Properties that take any value are left out.

    Raises:
        NoInstanceError: for a schema that takes any object.
    """
    filler = _Filler(schema)
    schema = filler.resolve(schema)
    others = schema.get("additionalProperties", True)
    properties = {**schema.get("properties", {}), "not_in_the_schema": others}
    wrong = {name: values[0] for name, one in properties.items() if (values := filler.unfit(one))}
    if not wrong and not schema.get("required"):
        raise NoInstanceError("every object fits the schema")
    return wrong


class _Filler:
    """Fills the parts of one schema. It knows the definitions, and which of them are being filled."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._left = _MOST_VALUES
        self._open_references: list[str] = []

    def _take(self, values: int) -> None:
        """Count values before they are made: arrays of arrays soon take more memory than there is."""
        self._left -= values
        if self._left < 0:
            raise TooLargeError(f"the schema asks for more than {_MOST_VALUES:,} values")

    def fill(self, schema: JsonObject | bool) -> Any:
        self._take(1)
        if isinstance(schema, bool):
            return None
        if "$ref" not in schema:
            return self._fill(self._merged(schema))
        reference = schema["$ref"]
        if reference in self._open_references:
            raise NoInstanceError(f"{reference!r} contains itself without an end")
        self._open_references.append(reference)
        try:
            return self._fill(self._merged(self.resolve(schema)))
        finally:
            self._open_references.pop()

    def resolve(self, schema: JsonObject) -> JsonObject:
        """Return the schema that a `$ref` points to, merged with the keywords beside the `$ref`."""
        seen: set[str] = set()
        while "$ref" in schema:
            reference = schema["$ref"]
            if reference in seen:
                raise NoInstanceError(f"{reference!r} contains itself without an end")
            seen.add(reference)
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema = self._target(reference) | beside
        return schema

    def _target(self, reference: str) -> JsonObject:
        """Return the schema that a JSON pointer into the whole schema points to."""
        target: Any = self._root
        for key in reference.removeprefix("#").split("/")[1:]:
            name = key.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or name not in target:
                raise NoInstanceError(f"{reference!r} points to nothing in the schema")
            target = target[name]
        if not isinstance(target, dict):
            raise NoInstanceError(f"{reference!r} points to {target!r}, which is not a schema")
        return target

    def unfit(self, schema: JsonObject | bool) -> list[object]:
        """Return one value of each type that `schema` does not allow."""
        allowed = self._types(schema)
        return [value for kind, value in _OF_EACH_TYPE.items() if kind not in allowed]

    def _types(self, schema: JsonObject | bool) -> Set[str]:
        if isinstance(schema, bool):
            return _OF_EACH_TYPE.keys() if schema else set()
        schema = self._merged(self.resolve(schema))
        if "const" in schema or "enum" in schema:
            return set()  # single values
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return {kind for option in schema[keyword] for kind in self._types(option)}
        kind = _type_of(schema)
        if kind is None:
            return _OF_EACH_TYPE.keys()
        return {"number" if one == "integer" else one for one in ([kind] if isinstance(kind, str) else kind)}

    def _merged(self, schema: JsonObject) -> JsonObject:
        """Return `schema` merged with the schemas of its `allOf`."""
        if "allOf" not in schema:
            return schema
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            part = self._merged(self.resolve(part))
            properties = merged.get("properties", {}) | part.get("properties", {})
            required = [*merged.get("required", []), *part.get("required", [])]
            merged |= part | {"properties": properties, "required": required}
        return merged

    def _fill(self, schema: JsonObject) -> Any:
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                beside = {key: value for key, value in schema.items() if key != keyword}
                return self._shortest([beside | option for option in schema[keyword]])
        kind = _type_of(schema)
        if isinstance(kind, list):
            return self._shortest([schema | {"type": one} for one in kind])
        return self._of_type(kind, schema)

    def _of_type(self, kind: str | None, schema: JsonObject) -> Any:
        match kind:
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return False
            case _:
                return None

    def _shortest(self, options: list[JsonObject]) -> Any:
        found: list[Any] = []
        problems: list[str] = []
        for option in options:
            try:
                found.append(self.fill(option))
            except TooLargeError:
                raise
            except NoInstanceError as error:
                problems.append(str(error))
        if not found:
            raise NoInstanceError("; ".join(problems) or "a schema offers no alternatives")
        return min(found, key=lambda value: len(json.dumps(value)))

    def _object(self, schema: JsonObject) -> JsonObject:
        properties = schema.get("properties", {})
        filled = {name: self.fill(properties.get(name, {})) for name in schema.get("required", [])}
        for number in range(1, schema.get("minProperties", 0) - len(filled) + 1):
            filled[f"key{number}"] = self.fill(schema.get("additionalProperties", {}))
        return filled

    def _array(self, schema: JsonObject) -> list[Any]:
        filled = [self.fill(item) for item in schema.get("prefixItems", [])]
        missing = schema.get("minItems", 0) - len(filled)
        if missing <= 0:
            return filled
        items = schema.get("items", {})
        if not schema.get("uniqueItems"):
            return filled + [self.fill(items) for _ in range(missing)]
        return filled + self._distinct(items, missing)

    def _distinct(self, items: JsonObject, count: int) -> list[Any]:
        self._take(count)
        items = self.resolve(items)
        if "enum" in items:
            return list(items["enum"][:count])
        first = self.fill(items)
        if isinstance(first, int) and not isinstance(first, bool):
            return [first + number * items.get("multipleOf", 1) for number in range(count)]
        if isinstance(first, str) and "format" not in items and "pattern" not in items:
            return [f"{first}{number}" for number in range(count)]
        if count == 1:
            return [first]
        raise NoInstanceError(f"no {count} different instances are known of {json.dumps(items)}")

    def _string(self, schema: JsonObject) -> str:
        if schema.get("contentMediaType") == "application/json":
            return json.dumps(self.fill(schema.get("contentSchema", {})))
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        shortest: int = schema.get("minLength", 0)
        if shortest > _MOST_CHARACTERS:
            raise TooLargeError(f"the schema asks for a text of more than {_MOST_CHARACTERS:,} characters")
        pattern = schema.get("pattern")
        candidates = [character * max(shortest, 1) for character in "x0aA"] if pattern else []
        for candidate in ["x" * shortest, *candidates]:
            if pattern is None or re.search(pattern, candidate):
                return candidate
        raise NoInstanceError(f"no simple string is known that matches the pattern {pattern!r}")


def _type_of(schema: JsonObject) -> str | list[str] | None:
    """Return the type of a schema, or its types; `None` if it allows any value."""
    known = (_TYPE_OF_KEYWORD[key] for key in schema if key in _TYPE_OF_KEYWORD)
    kind: str | list[str] | None = schema.get("type") or next(known, None)
    return kind


def _number(schema: JsonObject, *, whole: bool) -> int | float:
    """Return the number nearest to zero within the bounds."""
    bounds = {name: Fraction(str(schema[name])) for name in _BOUNDS if name in schema}
    step = Fraction(str(schema["multipleOf"])) if "multipleOf" in schema else Fraction(1) if whole else None
    if step and whole:
        step = Fraction(step.numerator)  # whole multiples of 3/2 are multiples of 3

    candidates = [Fraction(0)]
    for bound in bounds.values():
        start = bound // step * step if step else bound
        candidates += [start + shift * (step or 1) for shift in (-1, 0, 1)]
    if not step:
        candidates.append(sum(bounds.values(), Fraction(0)) / max(len(bounds), 1))  # if bounds are close

    for value in sorted(candidates, key=abs):
        if all(_BOUNDS[name](value, bound) for name, bound in bounds.items()):
            return int(value) if value.denominator == 1 else float(value)
    raise NoInstanceError(f"no number fits {json.dumps(schema)}")


_BOUNDS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "minimum": ge,
    "exclusiveMinimum": gt,
    "maximum": le,
    "exclusiveMaximum": lt,
}
