"""Charts as inline SVG: drawn by matplotlib, coloured by the page's CSS, deterministic.

matplotlib draws with sentinel colours; afterwards every colour becomes a class (`f-bar` for a fill,
`s-axis` for a stroke), so that the same chart follows light and dark. Text stays text.
Each mark can take the focus and carries its numbers as its label.
"""

from __future__ import annotations

import logging
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any
from xml.etree import ElementTree as ET

WIDTH = 440.0  # px of the drawing; the page scales it
SALT = "trainmark"
ROLES = ("ink", "muted", "grid", "axis", "bar", "base", "error", "frontier", "bad", "hit", "front")
COLOURS = {role: f"#0000{index + 16:02x}" for index, role in enumerate(ROLES)}
_ROLE_OF = {colour: role for role, colour in COLOURS.items()}
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
RC: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": SALT, "font.size": 12,
    "axes.edgecolor": COLOURS["axis"],
    "axes.labelcolor": COLOURS["muted"], "xtick.color": COLOURS["axis"],
    "ytick.color": COLOURS["axis"], "xtick.labelcolor": COLOURS["muted"],
    "ytick.labelcolor": COLOURS["muted"], "axes.grid": True, "axes.axisbelow": True,
    "grid.color": COLOURS["grid"], "grid.linewidth": 1, "axes.spines.top": False,
    "axes.spines.right": False, "axes.linewidth": 1, "text.color": COLOURS["ink"],
    "axes.formatter.use_mathtext": False, "axes.unicode_minus": True, "axes.labelsize": 11.5,
    "xtick.labelsize": 11, "ytick.labelsize": 11, "path.simplify": False,
}  # fmt: skip


@dataclass(frozen=True)
class Mark:
    """One row in a chart. `tip` is what hover, focus and screen readers tell."""

    label: str
    tip: str
    value: float | None = None
    error: float | None = None
    shown: str = ""
    word: str = ""  # instead of a bar: OOM, not yet measured, …
    emphasis: str = "bar"  # bar | base


@dataclass(frozen=True)
class Point:
    label: str
    tip: str
    memory: float
    rate: float
    error: float | None
    on_frontier: bool


@dataclass(frozen=True)
class Words:
    """Title (the accessible name), description and axis titles."""

    title: str
    description: str
    x: str
    y: str = ""


def bars_height(rows: int) -> float:
    return 27.0 * rows + 46


def bars(marks: Sequence[Mark], words: Words, name: str) -> str:
    """Horizontal bars with error bars and the number at the end of each; "" without any value."""
    if not any(mark.value is not None for mark in marks):
        return ""
    labels = [cut(mark.label, 26) for mark in marks]
    left = 14 + max(_width(label) for label in labels) * 6.1
    height = bars_height(len(marks))
    with _drawing(height) as figure:
        axes = figure.add_axes(
            (left / WIDTH, 42 / height, (WIDTH - left - 78) / WIDTH, 1 - 46 / height)
        )
        top = max((mark.value or 0) + (mark.error or 0) for mark in marks)
        axes.set_xlim(0, top * 1.02 or 1)
        axes.set_ylim(len(marks) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="both", length=0)
        axes.locator_params(axis="x", nbins=5)
        axes.set_yticks(range(len(marks)), labels, color=COLOURS["ink"])
        axes.set_xlabel(words.x)
        for index, mark in enumerate(marks):
            _bar(axes, index, mark, left)
        return _finish(figure, words, name, {f"m{i}": mark.tip for i, mark in enumerate(marks)})


def _bar(axes: Any, index: int, mark: Mark, left: float) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.transforms import blended_transform_factory

    across = blended_transform_factory(axes.figure.transFigure, axes.transData)
    hit = Rectangle(
        (0.004, index - 0.48), 0.992, 0.96, transform=across, clip_on=False, gid=f"m{index}",
        facecolor=COLOURS["hit"], zorder=0.1,
    )  # fmt: skip
    axes.add_patch(hit)
    end = axes.get_xlim()[1]
    if mark.value is None:
        axes.text(
            end * 0.012, index, mark.word, va="center_baseline", color=COLOURS["bad"], size=11.5
        )
        return
    axes.barh(index, mark.value, height=0.56, color=COLOURS[mark.emphasis], zorder=2)
    if mark.error:
        axes.plot(
            [mark.value - mark.error, mark.value + mark.error], [index, index],
            color=COLOURS["error"], linewidth=2, zorder=3, solid_capstyle="butt",
        )  # fmt: skip
    reach = mark.value + (mark.error or 0)
    axes.annotate(
        mark.shown, (reach, index), xytext=(6, 0), textcoords="offset points",
        va="center_baseline", size=11.5, annotation_clip=False,
    )  # fmt: skip


def scatter(points: Sequence[Point], words: Words, name: str, height: float) -> str:
    """Memory against throughput with the frontier; "" for fewer than two points."""
    if len(points) < 2:
        return ""
    height = min(max(height, 250.0), 560.0)
    with _drawing(height) as figure:
        axes = figure.add_axes((62 / WIDTH, 46 / height, (WIDTH - 78) / WIDTH, 1 - 60 / height))
        axes.tick_params(axis="both", length=0)
        _limits(axes, points)
        axes.set_xlabel(words.x)
        axes.set_ylabel(words.y)
        axes.locator_params(axis="both", nbins=5)
        frontier = sorted(
            ((p.memory, p.rate) for p in points if p.on_frontier), key=lambda pair: pair[0]
        )
        axes.plot(
            *zip(*frontier, strict=True), color=COLOURS["frontier"], linewidth=1.5,
            linestyle=(0, (4, 3)), zorder=1.5,
        )  # fmt: skip
        for index, point in enumerate(points):
            _point(axes, index, point)
        _labels(axes, points)
        return _finish(figure, words, name, {f"m{i}": point.tip for i, point in enumerate(points)})


def _limits(axes: Any, points: Sequence[Point]) -> None:
    for setter, values in (
        (axes.set_xlim, [p.memory for p in points]),
        (axes.set_ylim, [p.rate + side * (p.error or 0) for p in points for side in (-1, 1)]),
    ):
        low, high = min(values), max(values)
        room = (high - low) * 0.16 or abs(high) * 0.1 or 1
        setter(max(0, low - room), high + room)


def _point(axes: Any, index: int, point: Point) -> None:
    if point.error:
        axes.plot(
            [point.memory] * 2, [point.rate - point.error, point.rate + point.error],
            color=COLOURS["error"], linewidth=1.5, zorder=2,
        )  # fmt: skip
    role = "bar" if point.on_frontier else "base"
    axes.scatter([point.memory], [point.rate], s=70, color=COLOURS[role], linewidth=0, zorder=3)
    axes.scatter(
        [point.memory], [point.rate], s=440, color=COLOURS["hit"], linewidth=0, zorder=4,
        gid=f"m{index}",
    )  # fmt: skip


def _labels(axes: Any, points: Sequence[Point]) -> None:
    """Write labels where they cover neither a point nor each other; leave out what cannot be."""
    transform = axes.transData.transform
    spots = [transform((point.memory, point.rate)) for point in points]
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
    box = axes.bbox
    for point, (x, y) in zip(points, spots, strict=True):
        width = _width(point.label) * 5.9
        for dx, dy, align in _PLACES:
            start = x + dx - {"left": 0, "center": width / 2, "right": width}[align]
            area = (start, y + dy - 7, start + width, y + dy + 7)
            inside = area[0] >= box.x0 - 4 and area[2] <= box.x1 + 14
            if inside and not any(_overlap(area, other) for other in taken):
                taken.append(area)
                axes.annotate(
                    point.label, (point.memory, point.rate), xytext=(dx, dy), ha=align,
                    textcoords="offset points", va="center_baseline", size=11,
                    annotation_clip=False,
                )  # fmt: skip
                break


_PLACES = (
    (9, 0, "left"), (-9, 0, "right"), (0, 14, "center"), (0, -14, "center"),
    (8, 11, "left"), (8, -11, "left"), (-8, 11, "right"), (-8, -11, "right"),
)  # fmt: skip


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _width(text: str) -> int:
    """Half-width columns that a text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WFA" else 1 for char in text)


def cut(line: str, columns: int) -> str:
    """At most so many half-width columns, with an ellipsis where something is cut off."""
    if _width(line) <= columns:
        return line
    while _width(line) > columns - 1:
        line = line[:-1]
    return f"{line}…"


# --- from matplotlib's SVG to the page's ----------------------------------------------------------


class _drawing:  # noqa: N801 (reads as a statement)
    """A figure of the page's width, with matplotlib's settings held for as long as it is drawn."""

    def __init__(self, height: float) -> None:
        self.height = height

    def __enter__(self) -> Any:
        logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        self._context = rc_context(RC)
        self._context.__enter__()
        figure = Figure(figsize=(WIDTH / 72, self.height / 72), dpi=72)
        figure.patch.set_visible(False)
        return figure

    def __exit__(self, *found: Any) -> None:
        self._context.__exit__(*found)
        self._warnings.__exit__(*found)


def _finish(figure: Any, words: Words, name: str, tips: dict[str, str]) -> str:
    for axes in figure.axes:
        axes.patch.set_visible(False)
    text = StringIO()
    figure.savefig(
        text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    root = ET.fromstring(text.getvalue())
    for child in [c for c in root if c.tag.endswith("metadata")]:
        root.remove(child)
    _restyle(root)
    _rename(root, name, tips)
    _describe(root, words, name)
    return _serialise(root)


def _restyle(root: ET.Element) -> None:
    """Sentinel colours become classes; other declarations become presentation attributes."""
    for parent in list(root.iter()):
        for child in [c for c in parent if c.tag == f"{{{SVG}}}style"]:
            parent.remove(child)
    for element in root.iter():
        declarations = dict(_declarations(element.attrib.pop("style", "")))
        classes = []
        for name, value in declarations.items():
            role = _ROLE_OF.get(value)
            if role and name in ("fill", "stroke"):
                classes.append(f"{name[0]}-{role}")
            elif name == "font":
                size = re.search(r"([\d.]+)px", value)
                element.set("font-size", size.group(1) if size else "12")
            elif name in ("fill", "stroke", "stroke-width", "stroke-dasharray", "text-anchor",
                          "stroke-dashoffset", "font-size", "opacity"):  # fmt: skip
                element.set(name, value)
        for name in ("fill", "stroke"):
            role = _ROLE_OF.get(element.attrib.get(name, ""))
            if role:
                classes.append(f"{name[0]}-{role}")
                del element.attrib[name]
        if classes:
            element.set("class", " ".join(classes))
        if f"{{{XLINK}}}href" in element.attrib:
            element.set("href", element.attrib.pop(f"{{{XLINK}}}href"))


def _declarations(style: str) -> Iterator[tuple[str, str]]:
    for part in style.split(";"):
        name, colon, value = part.partition(":")
        if colon:
            yield name.strip(), value.strip()


def _rename(root: ET.Element, name: str, tips: dict[str, str]) -> None:
    """Keep only ids that are referred to, made unique on the page; turn marks into focus stops."""
    text = ET.tostring(root, encoding="unicode")
    used = list(dict.fromkeys(re.findall(r'(?:href="#|url\(#)([\w-]+)', text)))
    new = {old: f"{name}-{index}" for index, old in enumerate(used)}
    first = True
    for element in root.iter():
        own = element.attrib.pop("id", "")
        if own in tips:
            element.set("class", "mark")
            element.set("role", "img")
            element.set("tabindex", "0" if first else "-1")
            element.set("aria-label", tips[own])
            first = False
        elif own in new:
            element.set("id", new[own])
        for attribute in ("href", "clip-path"):
            if found := re.search(r"#([\w-]+)", element.attrib.get(attribute, "")):
                value = element.attrib[attribute]
                element.set(attribute, value.replace(found.group(1), new[found.group(1)]))


def _describe(root: ET.Element, words: Words, name: str) -> None:
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("class", "chart")
    root.set("aria-labelledby", f"{name}-t")
    root.set("aria-describedby", f"{name}-d")
    title, description = ET.Element(f"{{{SVG}}}title"), ET.Element(f"{{{SVG}}}desc")
    title.set("id", f"{name}-t")
    description.set("id", f"{name}-d")
    title.text, description.text = words.title, words.description
    root.insert(0, description)
    root.insert(0, title)


def _serialise(root: ET.Element) -> str:
    ET.register_namespace("", SVG)
    text = ET.tostring(root, encoding="unicode", short_empty_elements=True)
    text = re.sub(r"\s*\n\s*", " ", text)
    return re.sub(r"(\d+\.\d{2})\d+", r"\1", text)
