"""One palette for page and pictures: told apart with any colour vision, and seen on its background."""

import re
from itertools import combinations

import numpy as np
import pytest

from pyprof.prof.colours import DARK, LIGHT, ink_on, style_sheet
from pyprof.prof.timing.steps import PHASES
from pyprof.prof.work.kinds import CLASSES

THEMES = {"light": LIGHT, "dark": DARK}
# What the eye makes of linear RGB, at full severity: Machado, Oliveira and Fernandes (2009), table 1.
SEEN = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
# Linear RGB to OKLab (Ottosson 2020), in which equal distances look alike; a barely seen difference is about 0.02.
LMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
       [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
LAB = [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099],
       [0.0259040371, 0.7827717662, -0.808675766]]  # fmt: skip


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    return np.array(LAB) @ np.cbrt(np.array(LMS) @ np.clip(rgb, 0, 1))


def contrast(a: str, b: str) -> float:
    """WCAG 2."""
    dark, light = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (a, b))
    return (light + 0.05) / (dark + 0.05)


def test_the_measures_are_what_they_are_said_to_be():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)  # WCAG's own example
    assert oklab(linear("#ffffff")) == pytest.approx([1, 0, 0], abs=1e-6)  # OKLab's: white is L = 1, a = b = 0
    grey = np.array(SEEN["protanopia"]) @ linear("#808080")
    assert grey == pytest.approx(linear("#808080"), abs=1e-5)  # a grey stays what it is


@pytest.mark.parametrize("vision", SEEN)
@pytest.mark.parametrize("theme", THEMES)
def test_no_two_classes_look_alike(theme, vision):
    seen = [oklab(np.array(SEEN[vision]) @ linear(colour)) for colour in THEMES[theme].classes]
    assert len(seen) == len(CLASSES)
    nearest = min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))
    assert nearest > 0.075  # the palette before: 0.007 to 0.029


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_all_are_seen_on_the_card_and_words_are_read(theme):
    assert min(contrast(colour, theme.card) for colour in theme.classes) > 1.85
    assert contrast(theme.ink, theme.card) > 10 and contrast(theme.dim, theme.card) > 4.5
    assert min(contrast(ink_on(colour), colour) for colour in (*theme.classes, *theme.phases)) > 4.2
    assert set(theme.phases) <= set(theme.classes) and len(set(theme.phases)) == len(PHASES)


def test_the_page_gets_them_as_properties():
    light, dark = style_sheet().splitlines()
    assert light.startswith(":root { color-scheme: light; --page: #f4f4f2; ") and "--c3: #eaaf13;" in light
    assert dark.startswith(':root[data-theme="dark"] { color-scheme: dark; ') and f"--c3: {DARK.classes[3]};" in dark
    assert f"--backward: {LIGHT.of_phase('backward')};" in light
    assert LIGHT.of_class("convolution") == "#13635e"


def test_no_other_place_has_colours_of_its_own(root):
    sheet = (root / "prof/report/templates/report.css").read_text()
    assert re.findall(r"#[0-9a-f]{6}", sheet) == []
    used = set(re.findall(r"var\(--([\w-]+)\)", sheet)) - {"share"}  # a number that each cell of a heat map sets
    assert used <= set(re.findall(r"--([\w-]+):", style_sheet()))
