"""Slack's format of an alert. Names of tools come from agents: nothing in them may mention, link or format.

Reference: https://docs.slack.dev/messaging/formatting-message-text (escaping `&`, `<` and `>`, and that
`<!channel>` and `<@user>` mention).
"""

from __future__ import annotations

from typing import Any

from trimtab.alerts.alert import Alert

_BREAK = "\u200b"
"""A space without width: it parts what Slack would read as one mark."""
_MAX_SECTION = 2_900
"""Characters of a section; Slack takes 3,000."""


def slack_escape(text: str) -> str:
    """Return a text that Slack shows as it is.

    Args:
        text: any text.

    Returns:
        `&`, `<` and `>` as entities; `@`, backquotes and `://` broken, so that nobody is mentioned, no code
        begins and no address becomes a link.

    Example:
        >>> slack_escape("a < b & <!channel>")
        'a &lt; b &amp; &lt;!channel&gt;'
        >>> slack_escape("@here") == "@" + chr(0x200B) + "here"
        True
    """
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("@", f"@{_BREAK}").replace("`", "'").replace("://", f":{_BREAK}//")


def slack_payload(alert: Alert) -> dict[str, Any]:
    """Return the body of a Slack incoming webhook for an alert.

    Args:
        alert: the alert.

    Returns:
        `text` for notifications, and one section; links are not unfurled.

    Example:
        slack_payload(alert)["blocks"][0]["text"]["type"]  # 'mrkdwn'
    """
    title, text = slack_escape(alert.title), slack_escape(alert.text)
    waiting = f"\n{alert.held_back} more wait (rate limit)" if alert.held_back else ""
    section = f"*{title}*\n{text}"[:_MAX_SECTION] + waiting
    return {
        "text": title,
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": section, "verbatim": True}}],
        "unfurl_links": False,
        "unfurl_media": False,
    }
