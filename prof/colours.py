"""The colours of the web page and of the pictures, light and dark: one table for both.

No two classes look alike to people with protanopia, deuteranopia or tritanopia either (tests/prof/test_colours.py
simulates all three; Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009). Phases are five of the classes' colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyprof.prof.timing.steps import PHASES
from pyprof.prof.work.kinds import CLASSES

__all__ = ["DARK", "LIGHT", "THEMES", "Theme", "ink_on", "style_sheet"]


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours as #rrggbb: surfaces and lines by what they are for, then one a class and one a phase."""

    page: str
    card: str
    ink: str
    dim: str
    line: str
    grid: str
    accent: str
    mark: str  # behind what is chosen
    idle: str
    classes: tuple[str, ...]  # in the order of CLASSES
    phases: tuple[str, ...]  # in the order of PHASES

    def of_class(self, name: str) -> str:
        return self.classes[CLASSES.index(name)]

    def of_phase(self, name: str) -> str:
        return self.phases[PHASES.index(name)]


# matrix product, convolution, attention, element-wise, normalisation,
# softmax and loss and reduction, copy and index and random, optimizer, communication, other
_ON_LIGHT = (
    "#1f93f7", "#13635e", "#3b187a", "#eaaf13", "#9d2f00",
    "#53131a", "#83caa4", "#ac3aab", "#d66f24", "#918e94",
)  # fmt: skip
_ON_DARK = (
    "#39b7ff", "#96f8f9", "#955ddb", "#f4ef6d", "#895626",
    "#de6e4b", "#92cd1d", "#c22e87", "#e8c3a3", "#a39da3",
)  # fmt: skip

LIGHT = Theme(
    page="#f4f4f2", card="#ffffff", ink="#16181d", dim="#5c6068", line="#dcdcd8", grid="#ececea", accent="#2a5fc4",
    mark="#fff3c4", idle="#e4e4e0", classes=_ON_LIGHT,
    phases=(_ON_LIGHT[0], _ON_LIGHT[8], _ON_LIGHT[7], _ON_LIGHT[6], _ON_LIGHT[9]),
)  # fmt: skip
DARK = Theme(
    page="#131417", card="#1c1e22", ink="#eceef1", dim="#a2a7b0", line="#363940", grid="#2a2d33", accent="#84adf5",
    mark="#4a3f14", idle="#31343a", classes=_ON_DARK,
    phases=(_ON_DARK[0], _ON_DARK[5], _ON_DARK[7], _ON_DARK[6], _ON_DARK[9]),
)  # fmt: skip
THEMES: Mapping[str, Theme] = {"light": LIGHT, "dark": DARK}
SURFACES = ("page", "card", "ink", "dim", "line", "grid", "accent", "mark", "idle")
SPLIT = 0.26  # luminance from which on black is read better than white


def style_sheet() -> str:
    """The custom properties of the page: light by default, dark under ``data-theme="dark"``."""
    dark = f':root[data-theme="dark"] {{ {_properties("dark", DARK)} }}'
    return f":root {{ {_properties('light', LIGHT)} }}\n{dark}\n"


def _properties(scheme: str, theme: Theme) -> str:
    named = {name: getattr(theme, name) for name in SURFACES}
    named |= {f"c{i}": colour for i, colour in enumerate(theme.classes)}
    named |= dict(zip(PHASES, theme.phases, strict=True))
    return " ".join([f"color-scheme: {scheme};", *(f"--{name}: {colour};" for name, colour in named.items())])


def ink_on(colour: str) -> str:
    """Black or white, whichever is read better on a colour: by WCAG 2's relative luminance, as the page does.

    >>> ink_on("#eaaf13"), ink_on("#3b187a")
    ('#111111', '#ffffff')
    """
    r, g, b = ((int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5))
    return "#111111" if 0.2126 * r + 0.7152 * g + 0.0722 * b > SPLIT else "#ffffff"
