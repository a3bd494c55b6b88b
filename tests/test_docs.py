"""Generated pages follow the code, links lead somewhere, and the pages stay short."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace

import pytest

from trimtab.catalog import bound
from trimtab.detect.rules.all_rules import RULES, STREAM_RULES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
BLOCKS = re.compile(r"<!-- (?:begin|generated).*?(?:<!-- end.*?-->|\Z)", re.S)
"""What a script writes: from its first mark to its last, or to the end of the page."""
MADE = {
    "make_architecture.py": "architecture.md",
    "make_cli.py": "reference/cli.md",
    "make_detectors.py": "reference/rules.md",
    "make_metric_keys.py": "reference/metric-keys.md",
    "make_traces.py": "reference/agent-log-checks.md",
}
"""Scripts that renew a part of a page."""


def by_hand(page: Path) -> str:
    """The text of a page without its generated parts."""
    text = page.read_text(encoding="utf-8")
    return "" if page.name == "metrics.md" else BLOCKS.sub("", text)


@pytest.mark.parametrize(("script", "page"), MADE.items())
def test_a_generated_part_is_up_to_date(script, page):
    text = (DOCS / page).read_text(encoding="utf-8")
    made = runpy.run_path(str(DOCS / script))["page"](text)
    assert text == made, f"run python docs/{script}"


def test_metrics_page_is_up_to_date():
    page = runpy.run_path(str(DOCS / "make_metrics.py"))["page"]()
    assert (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8") == page, (
        "run python docs/make_metrics.py"
    )


def test_readme_is_short_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 100
    assert "make demo" in text
    assert "make test" in text
    assert "from trimtab.adapters.trl import watch" in text


def test_the_page_of_rules_names_every_rule():
    text = (DOCS / "reference" / "rules.md").read_text(encoding="utf-8")
    missing = [rule for rule in (*(r.name for r in RULES), *STREAM_RULES) if f"`{rule}`" not in text]
    assert not missing
    pictures = re.findall(r"\(rules/(\w+\.png)\)", text)
    assert pictures
    assert all((DOCS / "reference" / "rules" / name).stat().st_size < 250_000 for name in pictures)


def test_pages_agree_on_what_unhealthy_means():
    """One sentence in three pages, with the numbers of the catalog."""
    words = {2: "two", 3: "three", 4: "four"}
    several, few = words[int(bound("unhealthy"))], words[int(bound("unhealthy_critical"))]
    sentence = (
        f"alarms agree: {several} of them on different readings or slices stand at the same step, raised within "
        f"{bound('agree_steps'):.0f} steps of each other; {few} are enough if one is critical, and a NaN or "
        "infinity is by itself."
    )
    texts = {
        name: " ".join((DOCS / name).read_text(encoding="utf-8").split())
        for name in ("glossary.md", "tutorial.md", "explanation/detectors.md")
    }
    assert not [
        name for name, text in texts.items() if sentence not in text.replace("Alarms agree", "alarms agree")
    ]
    waits = texts["explanation/detectors.md"]
    assert f"fewer than {words[int(bound('judged_readings'))]} readings could be judged" in waits
    assert f"fewer than {bound('short_run'):.0f} steps in which more rules wait than judged" in waits


def test_the_page_of_the_command_line_has_every_command():
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert "## trimtab traces export\n\n    trimtab traces export [OPTIONS] LOGS...\n" in text
    assert "| `--margin` | `float`, at least 1e-09, default `0.05` |" in text
    assert "([metric-logs](../how-to/metric-logs.md))" in text
    assert len(re.findall(r"^## trimtab ", text, re.M)) == len(re.findall(r"^    trimtab ", text, re.M)) >= 18


def test_the_api_pages_name_objects_that_exist():
    """Every `::: name` and every member below it; `make docs` looks at those that need torch too."""
    for page in sorted((DOCS / "reference" / "api").glob("*.md")):
        for name, options in re.findall(
            r"^::: ([\w.]+)\n((?: +.*\n)*)", page.read_text(encoding="utf-8") + "\n", re.M
        ):
            if name.startswith(("trimtab.adapters.trl", "trimtab.objectives")):
                continue  # load torch, which takes longer than all other tests of this file
            target = resolve_name(name)
            members = re.search(r"members: \[([^\]]*)\]", options)
            missing = [
                m for m in (members[1].split(",") if members else ()) if not hasattr(target, m.strip())
            ]
            assert not missing, f"{page.name}: {name}"


def test_the_page_of_agent_log_checks_has_its_tables():
    text = (DOCS / "reference" / "agent-log-checks.md").read_text(encoding="utf-8")
    assert "| `loops` | episodes go round in circles | warning |" in text
    assert "| `swe-agent` |" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#[^)]*)?\)", text):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
            assert anchor[1:] in {slug(title) for title in titles}, f"{page.name}: {target}{anchor}"


def slug(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_pages_that_code_names_exist():
    named = {}
    for folder in ("src", "reproduce", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|py)\b", path.read_text(encoding="utf-8")):
                named[page] = path.name
    named.pop("docs/gguf.md", None)  # llama.cpp's
    missing = {page: path for page, path in named.items() if not (ROOT / page).exists()}
    assert not missing


def test_the_site_has_an_entry_for_every_page():
    entries = re.findall(r"^ +- .*: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert sorted(entries) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_what_github_shows_the_site_shows_too():
    """Hooks of the site: links out of docs/ become paths, and pipes in code of a table lose their backslash."""
    hooks = runpy.run_path(str(DOCS / "site_hooks.py"))
    page = SimpleNamespace(
        file=SimpleNamespace(abs_src_path=str(DOCS / "how-to" / "x.md"), src_path="how-to/x.md")
    )
    text = "[a](../../README.md#look) [b](verl.md#c) [d](https://e.f)\n```python no-run\n"
    shown = "a (`README.md`) [b](verl.md#c) [d](https://e.f)\n```python\n"
    assert hooks["on_page_markdown"](text, page=page) == shown
    assert (
        hooks["on_page_content"]("<td><code>a\\|b</code></td><p>c\\|d</p>")
        == "<td><code>a|b</code></td><p>c\\|d</p>"
    )


@pytest.mark.parametrize(
    ("html", "number"),
    [
        ('<script src="https://a.b/c.js"></script>', 1),
        ('<link rel="stylesheet" href="//a.b/c.css"><link rel="preconnect" href="https://a.b">', 2),
        ("<style>@import 'https://a.b/c.css'; p {background: url(http://a.b/d.png)}</style>", 2),
        ('<p style="background: url(https://a.b/c.png)"><div class="mermaid">', 2),
        ('<img src="c.png" srcset="https://a.b/d.png 2x, e.png">', 1),
        (
            '<a href="https://a.b">https://a.b</a><script src="c.js"></script><link rel="canonical" href="https://a.b">',
            0,
        ),
    ],
)
def test_the_site_counts_what_a_page_loads_from_outside(html, number):
    assert len(runpy.run_path(str(DOCS / "site_hooks.py"))["addresses"](html)) == number


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist(page):
    named = re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|sh|md))\b", by_hand(page))
    roots = (ROOT, ROOT / "src" / "trimtab", ROOT / "src" / "trimtab" / "detect" / "detectors")
    assert not [name for name in named if not any((root / name).exists() for root in roots)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_are_short(page):
    """At most 1,500 words and 160 columns a page, generated parts and rows of tables aside."""
    text = by_hand(page)
    assert len(text.split()) <= 1500
    assert not [line for line in text.splitlines() if len(line) > 160 and not line.startswith("|")]
    assert page.name == "README.md" or text == "" or text.startswith("# ")


def test_generated_parts_are_reference():
    """Only reference pages, the catalog and the table of packages hold what a script writes."""
    generated = {
        page.relative_to(DOCS).as_posix()
        for page in PAGES[2:]
        if BLOCKS.search(page.read_text(encoding="utf-8"))
    }
    assert {name for name in generated if not name.startswith("reference/")} == {"architecture.md"}
