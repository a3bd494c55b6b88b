"""Secrets in command lines and configurations, replaced before anything is written or shown.

A key that says password, secret, credential or the like masks any value; one that says token or key masks
text alone, so that `max_tokens` and `top_k` keep their numbers. Text that looks like a token is masked
whatever its key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_SECRET_NAME = re.compile(
    r"(token|secret|passw|credential|auth|api.?key|access.?key|private.?key|_key$|^key$)", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"^(hf_|sk-|ghp_|gho_|github_pat_|xox[abp]-|AKIA|glpat-|eyJ)|^(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9+_=-]{32,}$|://[^/@\s]+@"
)
_INSIDE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{12,}|gh[po]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|xox[abp]-[\w-]{8,}|AKIA[A-Z0-9]{12,}|glpat-[\w-]{12,}|eyJ[\w-]{16,}(?:\.[\w-]+)*)"
    r"|(?<=://)[^/@\s]+(?=@)"
)
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_ALWAYS = frozenset({
    "secret", "secrets", "password", "passwd", "passphrase", "credential", "credentials", "apikey", "auth",
    "authorization", "bearer", "cookie",
})  # fmt: skip
_TEXT_ALONE = frozenset({"token", "key", "keys"})
_MASK = "***"
_MAX_DEPTH = 8
"""Levels of a configuration that are read; what lies deeper is masked whole."""


def masked(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments with values that look like a token or a key replaced.

    >>> masked(["train.py", "--api-key", "abc", "--hf_token=x", "--lr", "1e-6", "sk-123"])
    ['train.py', '--api-key', '***', '--hf_token=***', '--lr', '1e-6', '***']
    """
    shown: list[str] = []
    secret_next = False
    for text in map(str, arguments):
        name, equals, value = text.partition("=")
        named = bool(_SECRET_NAME.search(name.lstrip("-")))
        if secret_next and not text.startswith("--"):
            shown.append(_MASK)
        elif equals and (named or _SECRET_VALUE.search(value)):
            shown.append(f"{name}={_MASK}")
        else:
            shown.append(_MASK if _SECRET_VALUE.search(text) else text)
        secret_next = named and not equals and text.startswith("-")
    return shown


def masked_settings(value: Any, key: str = "", depth: int = 0) -> Any:
    """Return a configuration with its secrets replaced, at any level.

    Args:
        value: JSON types; anything else becomes its text.
        key: the name it has, which may say that it is a secret.
        depth: level of the value.

    Returns:
        A copy.

    Example:
        >>> masked_settings({"hub_token": "hf_x", "max_tokens": 512, "a": {"password": 1, "url": "s://u:p@h"}})
        {'hub_token': '***', 'max_tokens': 512, 'a': {'password': '***', 'url': 's://***@h'}}
    """
    if value is None or isinstance(value, bool) or value == "":
        return value
    words = {word.lower() for word in _WORDS.findall(key)}
    if words & _ALWAYS or depth > _MAX_DEPTH:
        return _MASK
    if isinstance(value, Mapping):
        return {str(name): masked_settings(item, str(name), depth + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked_settings(item, key, depth + 1) for item in value]
    if isinstance(value, (int, float)):
        return value
    return _MASK if words & _TEXT_ALONE else masked_text(str(value))


def masked_text(text: str) -> str:
    """Return a text without the tokens of services and the passwords of addresses inside it.

    >>> masked_text("401 for https://me:pw@host/x with hf_abcdefghij")
    '401 for https://***@host/x with ***'
    """
    return _INSIDE.sub(_MASK, text)
