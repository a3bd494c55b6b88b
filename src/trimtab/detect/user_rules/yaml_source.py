"""YAML as plain data with the line of each value, and its conversion to typed structs.

Scalars, lists and mappings only: no tags, no anchors, no code.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from trimtab.errors import RuleError, TrimtabError
from trimtab.safe_files import require_regular

Where = tuple[str | int, ...]
"""Path of a value: names of fields and positions in lists."""
T = TypeVar("T")
_WORDS = {"float": "a finite number", "int": "a whole number", "bool": "true or false",
          "str": "text (quote it)",
          "array": "a list", "object": "a mapping"}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A rule file or a run header."""

    name: str
    lines: Mapping[Where, int] = field(default_factory=dict)  # path of a value -> its line, where known
    error_type: type[TrimtabError] = RuleError
    content: str = "rules"  # what the file holds

    def error(self, where: Where, text: str, label: str = "") -> TrimtabError:
        """Return an error in one line: file, line, field (or `label`), what is wrong and what to do."""
        known = (where[:size] for size in range(len(where), -1, -1))
        line = next((self.lines[path] for path in known if path in self.lines), 0)
        names = [name for name in where if isinstance(name, str)]
        inside = names[1:] if self.content == "rules" else ()
        label = label or ".".join(inside or names) or self.content
        return self.error_type(" ".join(f"{self.name}{f':{line}' if line else ''}: {label}: {text}".split()))


def close(name: Any, known: Iterable[str]) -> str:
    """Return a hint: the closest known name, or all of them."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"


def convert(data: Any, kind: type[T], source: Source, where: Where = (), of: str = "") -> T:
    """Return `data`, the value at path `where`, as a `kind`; `of` names what has the fields of `kind`.

    Raises:
        TrimtabError: something does not fit (RuleError, or the source's own); in one line with file, line and
            field.
    """
    data = _whole(data)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        inside = tuple(int(i) if i else name for name, i in re.findall(r"(\w+)|\[(\d+)\]", path))
        expected: Any = kind
        for step in inside:
            data = data[step]
            expected = _item(expected) if isinstance(step, int) else _fields(expected)[step].type
        raise _explain(text, data, expected, source, (*where, *inside), of) from None


def _explain(text: str, value: Any, kind: Any, source: Source, where: Where, of: str) -> TrimtabError:
    """Return the error for a message of msgspec on `value`."""
    name = (re.findall(r"`(.*?)`", text) or [""])[0]
    if text.startswith("Object missing"):
        needed = ", ".join(f.encode_name for f in _fields(kind).values() if f.required)
        return source.error((*where, name), f"is missing; give {needed}")
    if text.startswith("Object contains unknown"):
        return source.error((*where, name[:60]), f"unknown field{of}{close(name, _fields(kind))}")
    if text.startswith("Invalid enum"):
        return source.error(where, f"{value!r:.40} is unknown{close(value, get_args(kind))}")
    wanted = re.sub(r"`(\w+)`", lambda m: _WORDS.get(m[1], m[1]), text.split(", got")[0])
    return source.error(where, f"{value!r:.40} is not valid; give {wanted.removeprefix('Expected ')}")


def _fields(kind: Any) -> dict[str, msgspec.structs.FieldInfo]:
    return {info.encode_name: info for info in msgspec.structs.fields(kind)}


def _item(kind: Any) -> Any:
    """Return the type of the items of a list type, annotated or not."""
    first = get_args(kind)[0]
    return get_args(first)[0] if get_origin(first) is list else first


def _whole(data: Any) -> Any:
    """Return `data` with 3.0 as 3, which every number takes."""
    if isinstance(data, dict):
        return {name: _whole(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_whole(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() and abs(data) < 2**53 else data


def read_yaml(
    path: str | os.PathLike[str], error_type: type[TrimtabError] = RuleError, content: str = "rules"
) -> tuple[Any, Source]:
    """Return a file's one document, and the lines of its values.

    Args:
        path: the file.
        error_type: what is raised.
        content: what the file holds, for messages.

    Raises:
        TrimtabError: the file cannot be read or is not such YAML; of `error_type`.
    """
    import yaml  # here, so that `import trimtab` stays light

    reader = _Reader(os.fspath(path), error_type, content)
    error_of = reader.source.error
    require_regular(path, error_type)
    wanted = "a list of rules under `rules:`" if content == "rules" else content
    try:
        node = yaml.compose(Path(path).read_text(encoding="utf-8-sig"), Loader=yaml.SafeLoader)
        if node is not None:
            return reader.plain(node, ()), reader.source
        reader.lines[()] = 1
        raise error_of((), f"the file is empty; give {wanted}")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a file of UTF-8 text"
        raise error_of((), f"cannot be read ({why}); give a YAML file of {content}", "file") from error
    except yaml.YAMLError as error:
        mark, what = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        what = what or getattr(error, "reason", None) or "it cannot be parsed"
        reader.lines[()] = mark.line + 1 if mark else 0
        raise error_of((), f"{what}; check indentation, colons and quotes there", "yaml") from error
    except RecursionError as error:
        raise error_of((), "nested too deeply; write it flat", "yaml") from error


class _Reader:
    """Nodes of PyYAML's composer as plain data."""

    def __init__(self, name: str, error_type: type[TrimtabError], content: str) -> None:
        import yaml

        self.yaml, self.loader = yaml, yaml.SafeLoader("")
        self.lines: dict[Where, int] = {}
        self.source = Source(name, self.lines, error_type, content)
        self.seen: set[int] = set()

    def plain(self, node: Any, where: Where) -> Any:
        """Return the value of a node, noting the lines of all that is inside."""
        self.lines.setdefault(where, node.start_mark.line + 1)
        if id(node) in self.seen:
            raise self.source.error(where, "anchors and aliases are not read; write the value out", "yaml")
        self.seen.add(id(node))
        if isinstance(node, self.yaml.SequenceNode):
            return [self.plain(item, (*where, i)) for i, item in enumerate(node.value)]
        if isinstance(node, self.yaml.ScalarNode):
            return self._scalar(node, where)
        values: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, self.yaml.ScalarNode):
                raise self.source.error(where, "the name of a field must be plain text", "yaml")
            name, inside = str(key.value), (*where, str(key.value))
            first, self.lines[inside] = self.lines.get(inside), key.start_mark.line + 1
            if first is not None:
                raise self.source.error(inside, f"given twice, first in line {first}; keep one")
            values[name] = self.plain(item, inside)
        return values

    def _scalar(self, node: Any, where: Where) -> Any:
        kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
        if kind in ("int", "float", "bool", "null"):
            try:
                return self.loader.construct_object(node)
            except (ValueError, self.yaml.YAMLError) as error:
                text = f"{node.value!r:.40} is not a valid {kind}; correct it or quote it"
                raise self.source.error(where, text, "yaml") from error
        if kind not in ("str", "timestamp", "value", "merge"):
            raise self.source.error(where, f"the tag {node.tag!r:.60} is not read; remove it", "yaml")
        if kind == "str" and node.style is None and node.value[:1] in tuple("+-.0123456789"):
            try:  # YAML 1.1 takes 1e-3 for text
                return float(node.value)
            except ValueError:
                return node.value
        return node.value
