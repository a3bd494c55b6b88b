"""A page of evidence between its marks: claims near the top, figures and tables below, all made from a bank, nothing typed by hand."""

from __future__ import annotations

from pathlib import Path

from reproduce.pilot.claims import claims
from reproduce.pilot.figures import CAPTIONS, draw_averages, draw_cdfs, draw_tails
from reproduce.pilot.first import collapsing, false_alarms, growth, sensitivity, threshold_table
from reproduce.pilot.made_of import lead_figures
from reproduce.pilot.reading import load_bank
from reproduce.pilot.summary import Figures, figures_of
from reproduce.pilot.tables import controls, late_tails, outcomes, overview, variance
from trimtab.errors import RunError

__all__ = ["BEGIN", "CLAIMS", "END", "check_page", "write_evidence"]

BEGIN, END = "<!-- begin: written by reproduce/tail_emergence.py -->", "<!-- end -->"
CLAIMS = ("<!-- begin claims: written by reproduce/tail_emergence.py -->", "<!-- end claims -->")
MARKS = (CLAIMS, (BEGIN, END))
SECTIONS = (overview, outcomes, variance, threshold_table, growth, collapsing, lead_figures, sensitivity, false_alarms, late_tails, controls)  # fmt: skip
EMPTY = "# Evidence\n\n{0[0]}\n{0[1]}\n\n{1[0]}\n{1[1]}\n"


def check_page(page: Path) -> None:
    """Raise RunError unless the page is new or has both pairs of marks, each once and in order: other words are never overwritten."""
    if page.is_dir():
        raise RunError(f"{page} is a folder; give a file for the page")
    if not page.exists():
        return
    text = page.read_text()
    for begin, end in MARKS:
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            raise RunError(f"{page} has not one pair of the marks {begin} and {end}; restore them, or give another --page")  # fmt: skip


def write_evidence(bank: Path, page: Path) -> Figures:
    """Replace what is between the marks of the page (a new file if there is none); draw three figures in the folder of its stem."""
    check_page(page)
    runs = load_bank(bank)
    pictures = page.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    for name, draw in (("tails", draw_tails), ("cdf", draw_cdfs), ("averages", draw_averages)):
        draw(runs, pictures / f"{name}.png")
    shown = [
        f"![{title}]({pictures.name}/{name}.png)\n\n*{title}.* {text}"
        for name, (title, text) in CAPTIONS.items()
    ]
    text = page.read_text() if page.exists() else EMPTY.format(*MARKS)
    text = _between(text, CLAIMS, claims(runs))
    text = _between(text, (BEGIN, END), "\n\n".join([*shown, *(section(runs) for section in SECTIONS)]))
    half = page.with_name(page.name + ".part")
    half.write_text(text)
    half.replace(page)
    return figures_of(runs)


def _between(text: str, marks: tuple[str, str], body: str) -> str:
    head, _, rest = text.partition(marks[0])
    return f"{head}{marks[0]}\n\n{body}\n\n{marks[1]}{rest.partition(marks[1])[2]}"
