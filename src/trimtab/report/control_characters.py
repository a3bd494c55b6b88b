"""Text from a run (tool names, run names, reward names) is hostile until proven otherwise; here it is made
inert.

Prevents: a tool called ``"\\u202egpj.exe"`` or one that carries ANSI escapes rewriting the report that names
it.
"""

from __future__ import annotations

import math
import unicodedata

_JOINERS = "\u200c\u200d"  # needed to spell several languages, and harmless: they move and hide nothing
_UNSEEN = {
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
}  # controls, format (bidi, zero-width, tags), lone surrogates, separators


def escape_controls(text: object, *, lines: bool = False) -> str:
    r"""Show control, bidi and invisible characters instead of obeying them; with `lines`, newline and tab
    stay.

    C0 controls and DEL become their pictures (U+2400 block), everything else invisible its escape. The result
    always encodes to UTF-8. It is not HTML- or markup-escaped: the caller does that for its medium.

    >>> escape_controls("a\x1b[31mb\x7f")
    'a␛[31mb␡'
    >>> (escape_controls("x\u202ey\ud800"), escape_controls("one\ntwo"), escape_controls("one\ntwo",
    ...     lines=True))
    ('x\\u202ey\\ud800', 'one␊two', 'one\ntwo')
    """
    string = text if isinstance(text, str) else str(text)
    if string.isascii() and string.isprintable():
        return string
    return "".join(_picture(char, lines) for char in string)


def _picture(char: str, lines: bool) -> str:
    code = ord(char)
    if (lines and char in "\n\t") or char in _JOINERS or unicodedata.category(char) not in _UNSEEN:
        return char
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape_controls_json(value: object) -> object:
    r"""Copy a JSON-able value with its strings escape_controls, its floats at 6 significant digits and
    non-finite ones as None.

    Raises `TypeError` for anything JSON cannot hold, so that a wrong payload fails here and not in a browser.

    >>> escape_controls_json({"step": [1, 2], "value": [0.123456789, float("nan")], "name": "a\x00"})
    {'step': [1, 2], 'value': [0.123457, None], 'name': 'a␀'}
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, str):
        return escape_controls(value, lines=True)
    if isinstance(value, dict):
        return {escape_controls(key): escape_controls_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [escape_controls_json(item) for item in value]
    raise TypeError(f"a report payload holds JSON values only, not {type(value).__name__}: {value!r:.80}")
