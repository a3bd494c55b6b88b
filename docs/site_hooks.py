"""Hooks of the site (mkdocs.yml): what GitHub shows and Python-Markdown does not, and a check that nothing comes from outside."""

from __future__ import annotations

import logging
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
CELL = re.compile(r"<td[ >].*?</td>", re.S)
OUTSIDE = re.compile(r"^(?:https?:)?//")
STYLE_URL = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")
LOADED = {
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
LOADING_LINKS = {"stylesheet", "preconnect", "preload", "prefetch", "dns-prefetch", "icon", "modulepreload"}
log = logging.getLogger("mkdocs.hooks.trimtab")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with plain fences, and with a path in place of a link that leaves docs/."""
    folder = Path(page.file.abs_src_path).parent

    def inside(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.is_relative_to(ROOT) or not target.exists():
            log.warning("%s links to %s, which does not exist", page.file.src_path, link[2])
        return f"{link[1]} (`{target.relative_to(ROOT).as_posix()}`)"

    return LINK.sub(inside, re.sub(r"^```python no-run$", "```python", markdown, flags=re.M))


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with `|` for the escaped one that Python-Markdown leaves in code of table cells."""
    return CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)


def on_post_build(config: Any) -> None:
    """Warn, so that a strict build fails, of whatever a page or a style sheet would load from outside."""
    site = Path(config["site_dir"])
    for path in sorted(site.rglob("*.html")):
        for url in addresses(path.read_text(encoding="utf-8")):
            log.warning("%s loads %s from outside", path.relative_to(site), url)
    for path in sorted(site.rglob("*.css")):
        for url in STYLE_URL.findall(path.read_text(encoding="utf-8")):
            log.warning("%s loads %s from outside", path.relative_to(site), url)


def addresses(html: str) -> list[str]:
    """Return the addresses outside the site that a browser would load when it shows the page."""
    parser = Loads()
    parser.feed(html)
    return parser.outside


class Loads(HTMLParser):
    """Collects what a page loads: scripts, style sheets, pictures, frames, and diagrams that a script draws."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the address of one element, if it loads something."""
        values = {name: value or "" for name, value in attrs}
        loads = tag == "link" and set(values.get("rel", "").split()) & LOADING_LINKS
        url = values.get("href", "") if loads else values.get(LOADED.get(tag, ""), "")
        urls = [url, *(part.split()[0] for part in values.get("srcset", "").split(",") if part.strip())]
        self.outside += [url for url in urls if OUTSIDE.match(url)]
        self.outside += STYLE_URL.findall(values.get("style", ""))
        if "mermaid" in values.get("class", "").split():
            self.outside.append("mermaid (of unpkg.com)")
        self.style = tag == "style"

    def handle_data(self, data: str) -> None:
        """Take the addresses in a style element."""
        if self.style:
            self.outside += STYLE_URL.findall(data)
