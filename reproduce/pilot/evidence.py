"""docs/evidence.md between its two marks: tables and figures made from the recorded bank, nothing typed by hand."""

from __future__ import annotations

from pathlib import Path

from reproduce.pilot.figures import CAPTIONS, draw_averages, draw_cdfs, draw_tails
from reproduce.pilot.first import collapsing, growth, sensitivity, threshold_table
from reproduce.pilot.reading import load_bank
from reproduce.pilot.summary import Figures, figures_of
from reproduce.pilot.tables import controls, late_tails, outcomes, overview

__all__ = ["BEGIN", "END", "write_evidence"]

BEGIN, END = "<!-- begin: written by reproduce/tail_emergence.py -->", "<!-- end -->"
SECTIONS = (overview, outcomes, threshold_table, growth, collapsing, sensitivity, late_tails, controls)


def write_evidence(bank: Path, docs: Path) -> Figures:
    """Replace what is between the marks of docs/evidence.md (a new file if there is none); draw the three figures."""
    runs = load_bank(bank)
    pictures = docs / "evidence"
    pictures.mkdir(parents=True, exist_ok=True)
    for name, draw in (("tails", draw_tails), ("cdf", draw_cdfs), ("averages", draw_averages)):
        draw(runs, pictures / f"{name}.png")
    page = docs / "evidence.md"
    old = page.read_text() if page.exists() else f"# Evidence\n\n{BEGIN}\n{END}\n"
    head, _, rest = old.partition(BEGIN)
    tail = rest.partition(END)[2]
    shown = [
        f"![{title}](evidence/{name}.png)\n\n*{title}.* {text}" for name, (title, text) in CAPTIONS.items()
    ]
    body = "\n\n".join([*shown, *(section(runs) for section in SECTIONS)])
    page.write_text(f"{head}{BEGIN}\n\n{body}\n\n{END}{tail}")
    return figures_of(runs)
