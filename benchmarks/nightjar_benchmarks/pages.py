"""What the self-contained HTML reports share: the document around them, and a look that needs no colour vision."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

import plotly.graph_objects as go

# The colours of Okabe and Ito, each with a dash and a marker of its own; black would be no line among axes.
LOOKS = (
    ("#0072b2", "solid", "circle"),
    ("#e69f00", "dash", "triangle-up"),
    ("#7f7f7f", "dot", "square"),
    ("#009e73", "dashdot", "diamond"),
    ("#cc79a7", "longdash", "x"),
    ("#d55e00", "longdashdot", "star"),
    ("#56b4e9", "solid", "cross"),
)
_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1100px; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .3rem; }
.note { color: #555; }
.good { color: #00694d; font-weight: 600; } .bad { color: #b3261e; font-weight: 600; }
.scroll { overflow-x: auto; } .scroll > div { min-width: 60rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; text-align: right; }
thead th { border-bottom: 1px solid #ccc; }
@media (max-width: 640px) { body { font-size: 13px; margin: .5rem auto; } th, td { padding: .2rem .3rem; } }
"""


@dataclass
class Page:
    """Parts in order; plotly's script comes with the first plot and serves all."""

    title: str
    css: str = ""
    parts: list[str] = field(default_factory=list)
    _plots: int = 0

    def add(self, html: str) -> None:
        self.parts.append(html)

    def plot(self, figure: go.Figure, *, wide: bool = False) -> None:
        """`wide`: it keeps its width on a narrow screen, which scrolls it."""
        figure.update_layout(template="plotly_white")
        html = figure.to_html(
            full_html=False,
            include_plotlyjs=self._plots == 0,
            config={"displayModeBar": False, "responsive": True},
        )
        self._plots += 1
        self.add(f'<div class="scroll"><div>{html}</div></div>' if wide else html)

    def html(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield "<!doctype html>"
        yield '<html lang="en"><head><meta charset="utf-8">'
        yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
        yield f"<title>{escape(self.title)}</title><style>{_CSS}{self.css}</style></head><body>"
        yield from self.parts
        yield "</body></html>"
