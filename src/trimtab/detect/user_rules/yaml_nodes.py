"""A YAML file as plain values that know their line. No tags, no anchors, no code: scalars, lists and mappings only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.errors import RuleError


@dataclass(frozen=True)
class At:
    """A value (a scalar, a list of `At` or a dict of name -> `At`) and where it stands: file, and line (0: not known).

    `keys`: of a mapping, name -> line of the name.
    """

    value: Any
    where: str
    line: int = 0
    keys: dict[str, int] | None = None

    def __repr__(self) -> str:
        return repr(self.plain())

    def error(self, field: str, text: str, key: str = "") -> RuleError:
        """One line: file, line, field, what is wrong and what to do. `key`: of a mapping, the name whose line it is."""
        line = (self.keys or {}).get(key, self.line)
        place = f"{self.where}:{line}" if line else self.where
        return RuleError(" ".join(f"{place}: {field}: {text}".split()))

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {name: item.plain() for name, item in self.value.items()}
        return [item.plain() for item in self.value] if isinstance(self.value, list) else self.value


def at_plain(value: Any, where: str) -> At:
    """Plain values, as a run's header holds them, in the same form."""
    if isinstance(value, dict):
        return At({str(name): at_plain(item, where) for name, item in value.items()}, where)
    return At([at_plain(item, where) for item in value] if isinstance(value, list) else value, where)


def read_yaml(path: str | os.PathLike[str]) -> At:
    """A file's one document; RuleError when it cannot be read or is no such YAML."""
    import yaml  # here, so that `import trimtab` stays light

    where = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RuleError(f"{where}: file: cannot be read ({why}); give a YAML file of rules") from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            raise RuleError(f"{where}:1: rules: the file is empty; give a list of rules under `rules:`")
        return _At(where).convert(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        line = f":{mark.line + 1}" if mark else ""
        raise RuleError(
            f"{where}{line}: yaml: {' '.join(str(what).split())}; check indentation, colons and quotes there"
        ) from error
    except RecursionError as error:
        raise RuleError(f"{where}: yaml: nested too deeply; a rule is a flat mapping") from error


class _At:
    """Nodes of PyYAML's composer, made plain."""

    def __init__(self, where: str) -> None:
        import yaml

        self.where, self.yaml = where, yaml
        self.seen: set[int] = set()
        self.maker = yaml.SafeLoader("")

    def convert(self, node: Any) -> At:
        at = At(None, self.where, node.start_mark.line + 1)
        if id(node) in self.seen:
            raise at.error("yaml", "anchors and aliases are not read; write the value out")
        self.seen.add(id(node))
        if isinstance(node, self.yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, self.yaml.SequenceNode):
            return At([self.convert(item) for item in node.value], self.where, at.line)
        return At(self._scalar(node, at), self.where, at.line)

    def _mapping(self, node: Any, at: At) -> At:
        values: dict[str, At] = {}
        keys: dict[str, int] = {}
        for key, item in node.value:
            if not isinstance(key, self.yaml.ScalarNode):
                raise at.error("yaml", "a field's name is plain text")
            name = str(key.value)
            here = At(None, self.where, key.start_mark.line + 1)
            if name in values:
                raise here.error(name, f"given twice, first in line {keys[name]}; keep one")
            values[name], keys[name] = self.convert(item), here.line
        return At(values, self.where, at.line, keys)

    def _scalar(self, node: Any, at: At) -> Any:
        kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
        if kind in ("int", "float", "bool", "null"):
            try:
                return self.maker.construct_object(node)
            except (ValueError, self.yaml.YAMLError) as error:
                raise at.error("yaml", f"{node.value!r:.40} is no {kind}; correct it or quote it") from error
        if kind not in ("str", "timestamp", "value", "merge"):
            raise at.error("yaml", f"the tag {node.tag!r:.60} is not read; remove it")
        if kind == "str" and node.style is None:
            try:  # YAML 1.1 takes 1e-3 for text
                return float(node.value) if node.value[:1] in "+-.0123456789" else node.value
            except ValueError:
                return node.value
        return node.value
