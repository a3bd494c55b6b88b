"""Arguments drawn from a JSON schema: valid ones, the same for the same seed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from trimtab.errors import ToolError

_WORDS = ("tofa", "price of rice", "Berlin", "2026", "a-b_c", "naïve", "select", "north 7", "x")
_FORMATS = {
    "uri": "data:text/plain,trimtab", "url": "data:text/plain,trimtab", "date": "2026-11-23",
    "date-time": "2026-11-23T08:00:00Z", "time": "08:00:00Z", "email": "a@example.com",
    "uuid": "6f1c2f7e-3a51-4a0e-9d1b-0c9c1d2e3f40", "ipv4": "127.0.0.1", "hostname": "localhost",
}  # fmt: skip
_OPTIONAL = 0.5  # chance of an optional property
_DEEPEST = 6
_QUOTED = re.compile(r"(?<!\w)(?:'([^']{1,80})'|\"([^\"]{1,80})\")(?!\w)")


def draw_arguments(schema: Mapping[str, Any] | None, random: Random) -> dict[str, Any]:
    """Return arguments that a schema admits, as far as this small generator knows its words.

    Args:
        schema: JSON schema of an object; `$ref` into `$defs`, enum, const, anyOf, oneOf, allOf, types,
            bounds, lengths, formats and defaults are used. A pattern is not: give such a tool a trace.
        random: Source of the draws.

    Returns:
        The arguments; empty for no schema.

    Example:
        >>> schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 3}},
        ...           "required": ["n"]}
        >>> draw_arguments(schema, Random(0))
        {'n': 3}
    """
    value = _draw(schema or {"type": "object"}, random, schema or {}, 0)
    if not isinstance(value, dict):
        raise ToolError("a tool's schema must be that of an object")
    return value


def _draw(schema: Any, random: Random, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return random.choice(_WORDS)
    if "$ref" in schema:
        return _draw(_resolved(str(schema["$ref"]), root), random, root, depth + 1)
    for word in ("examples", "enum"):
        if schema.get(word):
            return random.choice(list(schema[word]))
    if "const" in schema:
        return schema["const"]
    for word in ("anyOf", "oneOf"):
        if schema.get(word):
            return _draw(random.choice(list(schema[word])), random, root, depth + 1)
    if schema.get("allOf"):
        merged: dict[str, Any] = {}
        for part in schema["allOf"]:
            merged |= _resolved(str(part["$ref"]), root) if "$ref" in part else part
        return _draw(merged, random, root, depth + 1)
    if "default" in schema and random.random() < _OPTIONAL:
        return schema["default"]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = random.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        return _object(schema, random, root, depth)
    if kind == "array":
        low = int(schema.get("minItems", 0))
        size = random.randint(low, max(low, min(int(schema.get("maxItems", low + 3)), low + 3)))
        return [_draw(schema.get("items", {}), random, root, depth + 1) for _ in range(size)]
    return _scalar(str(kind), schema, random)


def _object(schema: Mapping[str, Any], random: Random, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    return {
        name: _draw(inner, random, root, depth + 1)
        for name, inner in schema.get("properties", {}).items()
        if name in required or random.random() < _OPTIONAL
    }


def _scalar(kind: str, schema: Mapping[str, Any], random: Random) -> Any:
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "null":
        return None
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 100))
        if kind == "number":
            return round(low + (high - low) * (0.05 + 0.9 * random.random()), 6)
        step = int(schema.get("multipleOf", 1))
        first = int(low) + ("exclusiveMinimum" in schema)
        last = max(int(high) - ("exclusiveMaximum" in schema), first)
        return min(-(-random.randint(first, last) // step) * step, last - last % step)
    text = _text(schema, random)
    low, high = int(schema.get("minLength", 0)), int(schema.get("maxLength", 200))
    return (text * (low // len(text) + 1))[: max(low, len(text))][:high]


def _text(schema: Mapping[str, Any], random: Random) -> str:
    """A text of the schema's format, one that its description quotes as an example, or a word."""
    if schema.get("format") in _FORMATS:
        return _FORMATS[str(schema["format"])]
    description = str(schema.get("description", ""))
    quoted: list[str] = [first or second for first, second in _QUOTED.findall(description)]
    if quoted:
        return random.choice(quoted)
    return "08:30" if "HH:MM" in description else random.choice(_WORDS)


def _resolved(reference: str, root: Mapping[str, Any]) -> Any:
    node: Any = root
    for part in reference.removeprefix("#/").split("/"):
        if not isinstance(node, Mapping) or part not in node:
            raise ToolError(f"a tool's schema refers to {reference}, which is not in it")
        node = node[part]
    return node
