"""The colours of the web page and of the pictures, light and dark: one table for both.

No two classes look alike to people with protanopia, deuteranopia or tritanopia either (tests/prof/test_colours.py
simulates all three; Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009). Phases are eight of the classes' colours.
"""

from dataclasses import dataclass

from pyprof.prof.timing.steps import PHASES
from pyprof.prof.work.kinds import CLASSES

# Surfaces and lines by their use, on light and on dark.
_SURFACES = {
    "page": ("#f4f4f2", "#131417"),
    "card": ("#ffffff", "#1c1e22"),
    "ink": ("#16181d", "#eceef1"),
    "dim": ("#5c6068", "#a2a7b0"),
    "line": ("#dcdcd8", "#363940"),
    "grid": ("#ececea", "#2a2d33"),
    "accent": ("#2a5fc4", "#84adf5"),
    "mark": ("#fff3c4", "#4a3f14"),  # background of what is chosen
    "idle": ("#e4e4e0", "#31343a"),
}
# On light and on dark, one pair per class in the order of CLASSES.
_CLASSES = (
    ("#1f93f7", "#39b7ff"),  # GEMM, recurrent layers
    ("#13635e", "#96f8f9"),  # convolution
    ("#3b187a", "#955ddb"),  # attention
    ("#eaaf13", "#f4ef6d"),  # element-wise
    ("#9d2f00", "#895626"),  # normalisation
    ("#53131a", "#de6e4b"),  # softmax, loss, reductions
    ("#83caa4", "#92cd1d"),  # copies, indexing, random numbers
    ("#ac3aab", "#c22e87"),  # optimizer
    ("#d66f24", "#e8c3a3"),  # communication
    ("#918e94", "#a39da3"),  # other
)
_PHASES = ((0, 8, 7, 6, 1, 3, 4, 9), (0, 5, 7, 6, 1, 3, 4, 9))  # their colours among those of the classes
SPLIT = 0.26  # luminance from which black is easier to read than white


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours as #rrggbb: surfaces and lines by their use, then one per class and one per phase."""

    page: str
    card: str
    ink: str
    dim: str
    line: str
    grid: str
    accent: str
    mark: str
    idle: str
    classes: tuple[str, ...]  # in the order of CLASSES
    phases: tuple[str, ...]  # in the order of PHASES

    def of_class(self, name: str) -> str:
        return self.classes[CLASSES.index(name)]

    def of_phase(self, name: str) -> str:
        return self.phases[PHASES.index(name)]


def _theme(which: int) -> Theme:
    classes = tuple(pair[which] for pair in _CLASSES)
    phases = tuple(classes[i] for i in _PHASES[which])
    return Theme(**{name: pair[which] for name, pair in _SURFACES.items()}, classes=classes, phases=phases)


LIGHT, DARK = _theme(0), _theme(1)


def style_sheet() -> str:
    """The custom properties of the page: light by default, dark under ``data-theme="dark"``."""
    dark = f':root[data-theme="dark"] {{ {_properties("dark", DARK)} }}'
    return f":root {{ {_properties('light', LIGHT)} }}\n{dark}\n"


def _properties(scheme: str, theme: Theme) -> str:
    named = {name: getattr(theme, name) for name in _SURFACES}
    named |= {f"c{i}": colour for i, colour in enumerate(theme.classes)}
    named |= dict(zip(PHASES, theme.phases, strict=True))
    return " ".join([f"color-scheme: {scheme};", *(f"--{name}: {colour};" for name, colour in named.items())])


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour, by WCAG 2's relative luminance, as the page does.

    >>> ink_on("#eaaf13"), ink_on("#3b187a")
    ('#111111', '#ffffff')
    """
    r, g, b = ((int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5))
    return "#111111" if 0.2126 * r + 0.7152 * g + 0.0722 * b > SPLIT else "#ffffff"
