"""What the parts of the timeline draw on: one horizontal scale in per cent, three layers, and the names at the left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from markupsafe import Markup

from harness.report.svg import tag

NARROW = 640
"""Width in px at which labels that stand beside their bars must not meet; they don't move when the page is wider."""
USUAL = 1000
"""Width in px for which it is decided which labels fit into their bars, where no script can decide it."""
BAR = 18
"""Height of a hold, px."""


@dataclass(frozen=True)
class Label:
    """A name in the column left of the drawing. `y` in px; `kind` is row, server, lane, alarm, lock or track."""

    y: float
    text: str
    small: str | None = None
    kind: str = "row"


@dataclass
class Canvas:
    """Layers that are painted one over the other. `start` and `end` in seconds are the left and right edge."""

    start: float
    end: float
    back: list[Markup] = field(default_factory=list)
    middle: list[Markup] = field(default_factory=list)
    front: list[Markup] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    has: set[str] = field(default_factory=set)
    """Which signs occur; the legend explains those."""

    def share(self, seconds: float) -> float:
        """A duration as a percentage of the whole."""
        return 100 * seconds / (self.end - self.start)

    def x(self, time: float) -> str:
        """An instant as an SVG length."""
        return f"{self.share(time - self.start):.5f}%"

    def px(self, width: float) -> float:
        """A width in px as a percentage of the narrowest drawing."""
        return 100 * width / NARROW

    def rect(self, start: float, end: float, y: float, height: float, class_: str, rx: float | None = None) -> Markup:
        """A bar from one instant to another."""
        width = f"{max(0.0, self.share(end - start)):.5f}%"
        return tag("rect", x=self.x(start), width=width, y=y, height=height, rx=rx, class_=class_)

    def use(self, sign: str, time: float, y: float) -> Markup:
        """A sign out of the drawing's `defs`."""
        return tag("use", href=f"#{sign}", x=self.x(time), y=y)

    def inside(
        self, start: float, end: float, y: float, text: str, class_: str, per_letter: float = 6.8, keep: bool = False
    ) -> Markup:
        """A text at the start of a bar; the script keeps it in sight while the bar is (`templates/report.js`).

        It is shown only while the bar is wide enough for it, or with `keep` always.
        """
        share, need = self.share(end - start), 9 + per_letter * len(text)
        tight = not keep and share / 100 * USUAL < need
        return tag(
            "text",
            text,
            x=self.x(start),
            dx=6 if keep else 5,
            y=y,
            class_=f"fit {class_}" + (" keep" if keep else " tight" if tight else ""),
            data_a=f"{self.share(start - self.start):.5f}",
            data_p=f"{share:.5f}",
            data_n=round(need),
        )


def hit(title: str, *parts: Markup | None) -> Markup:
    """Marks with the text that explains them when pointed at."""
    return tag("g", tag("title", title), *parts, class_="hit")


def records(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows of a frame as named tuples, whose values have the types that `Story` gives for their columns."""
    return iter(frame.itertuples(index=False))


def ticks(start: float, end: float, most: int = 12) -> list[float]:
    """Round instants for an axis: steps of 1, 2 or 5 times a power of ten.

    >>> ticks(0, 7, 8)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    rough = (end - start) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(start / step - 1e-9)
    return [index * step for index in range(first, math.floor(end / step + 1e-9) + 1)]
