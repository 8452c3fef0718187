"""What the page is to everybody: contrast, colours that differ for all eyes, words beside them."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from typing import Any

import pytest

from .commands import ROOT, page_of
from .reading import Element

PATH = ROOT / "examples" / "llama-70b-64gpu" / "llama-70b.par"
TEXTS = ("ink", "dim", "link", "good", "warn", "bad")
CODE = ("ink", "comment", "string", "number", "keyword", "block", "field", "link", "dim")
FILLS = ("vermilion", "orange", "yellow", "green", "sky", "blue", "purple", "gray", "pale")
SCHEMES = ("light", "dark", "print")


@pytest.fixture(scope="module")
def page() -> Element:
    return page_of(PATH, "--nodes", "8")


@pytest.fixture(scope="module")
def style(page: Element) -> str:
    return page.one("style").text


def colors(style: str, scheme: str) -> dict[str, str]:
    """The custom properties that hold in a scheme, the later ones over the first."""
    blocks = re.findall(r"(@media [^{]*\{\s*)?:root \{([^}]*)\}", style)
    found: dict[str, str] = {}
    for media, body in blocks:
        if not media or scheme in media:
            found |= dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", body))
    return found


def linear(color: str) -> list[float]:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def luminance(color: str) -> float:
    """WCAG 2.2, relative luminance."""
    red, green, blue = linear(color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_as_published() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_text_can_be_read(style: str, scheme: str) -> None:
    known = colors(style, scheme)
    for name in TEXTS:
        for ground in ("page", "soft"):
            assert contrast(known[name], known[ground]) >= 4.5, (scheme, name, ground)
    for name in CODE:
        assert contrast(known[name], known["soft"]) >= 4.5, (scheme, name)
    for name in FILLS:
        assert contrast(known["on"], known[name]) >= 4.5, (scheme, name)
    assert contrast(known["line"], known["page"]) >= 3


def test_no_text_has_another_colour(style: str) -> None:
    """Every colour that a rule gives to words is one of those that are measured above."""
    used = set(re.findall(r"(?<![-\w])(?:color|fill): var\(--(\w+)\)", style)) - {"fill"}
    assert used <= {*TEXTS, *CODE, "on"}
    assert (
        set(re.findall(r"(?<![-\w])(?:color|fill|background): (?!var|repeating|none)", style))
        == set()
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_pipeline_stands_out_from_the_page(style: str, scheme: str) -> None:
    known = colors(style, scheme)
    for kind in ("forward", "backward", "input", "weight"):
        (name,) = re.findall(rf"\.a-{kind}\b[^{{]*\{{ --fill: var\(--(\w+)\)", style)
        assert contrast(known[name], known["page"]) >= 3, (scheme, kind)


# ── For all eyes ──────────────────────────────────────────────────────────────

# doi:10.1109/TVCG.2009.113, table 1, severity 1.
EYES = {
    "as they are": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "without red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "without green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "without blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def lab(color: str, eye: str) -> tuple[float, float, float]:
    """CIE L*a*b* of a colour as an eye sees it, D65."""
    seen = [sum(a * b for a, b in zip(row, linear(color), strict=True)) for row in EYES[eye]]
    red, green, blue = (min(1.0, max(0.0, part)) for part in seen)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    a, b, c = (t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z))
    return 116 * b - 16, 500 * (a - b), 200 * (b - c)


@pytest.mark.parametrize("eye", EYES)
def test_colours_differ(style: str, eye: str) -> None:
    """Ten is what a glance tells apart; a just noticeable difference is 2.3."""
    known = colors(style, "light")
    for one, other in combinations(FILLS, 2):
        pairs = zip(lab(known[one], eye), lab(known[other], eye), strict=True)
        assert sum((a - b) ** 2 for a, b in pairs) ** 0.5 > 10, (eye, one, other)


def test_colour_is_never_all_there_is(page: Element) -> None:
    for svg in page.all("svg"):
        assert list(svg.all("text")), svg.attributes
    for legend in page.having("ul", class_="legend"):
        for item in legend.all("li"):
            words = item.text.replace(item.one("span").text, "", 1).strip()
            assert words
    for cell in page.one("table", class_="map").all("td"):
        assert re.fullmatch(r"\d+p\d+ t\d+ d\d+", cell.text)
    letters = [each.one("span").text for each in page.having("ul", class_="legend")[0].all("li")]
    told = [letter for letter in letters if letter]
    assert len(told) == len(set(told)) > 4


# ── Read aloud, on paper, without a network ───────────────────────────────────


def test_tables_and_drawings_have_names(page: Element) -> None:
    ids = {each.attributes["id"] for each in page.all() if "id" in each.attributes}
    for table in page.all("table"):
        assert table.inside and table.one("caption").text.strip()
        for head in table.all("th"):
            assert head.attributes["scope"] in ("row", "col", "rowgroup")
    for svg in page.all("svg"):
        assert svg.attributes["role"] == "img"
        assert {*svg.attributes["aria-labelledby"].split()} <= ids
        assert svg.one("title").text and svg.one("desc").text
    for link in page.all("a"):
        assert link.attributes["href"].removeprefix("#") in ids
    assert page.one("html").attributes["lang"] == "en"
    assert len(list(page.all("h1"))) == 1
    levels = [int(each.name[1]) for each in page.all() if re.fullmatch(r"h[1-6]", each.name)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len([*page.all("main")]) == len([*page.all("header")]) == 1


def test_every_row_has_a_cell_for_every_head(page: Element) -> None:
    for table in page.all("table"):
        widths = set()
        for row in table.all("tr"):
            cells = [each for each in row.all() if each.name in ("td", "th")]
            widths.add(sum(int(cell.attributes.get("colspan", "1")) for cell in cells))
        assert len(widths) == 1, table.one("caption").text


def test_nothing_is_fetched(page: Element) -> None:
    for each in page.all():
        assert each.name not in ("img", "link", "iframe", "object", "embed", "base", "form", "use")
        for name, value in each.attributes.items():
            assert not name.startswith("on"), name
            if name in ("href", "src", "action"):
                assert value.startswith("#")
    assert not re.search(r"url\(|@import|@font-face", page.one("style").text)
    (policy,) = page.having("meta", http_equiv="Content-Security-Policy")
    assert policy.attributes["content"].startswith("default-src 'none'; style-src 'unsafe-inline'")


def test_the_one_script_is_the_one_that_is_allowed(page: Element) -> None:
    import base64
    import hashlib

    (script,) = page.all("script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    (policy,) = page.having("meta", http_equiv="Content-Security-Policy")
    assert f"script-src 'sha256-{digest}'" in policy.attributes["content"]
    assert len(script.text) < 300


def test_light_dark_and_paper(style: Any) -> None:
    assert "@media (prefers-color-scheme: dark)" in style
    assert "@media print" in style
    assert luminance(colors(style, "dark")["page"]) < 0.05
    assert colors(style, "print")["page"] == "#ffffff"


def test_templates_escape_everything() -> None:
    for template in (ROOT / "templates" / "report").iterdir():
        assert not re.search(r"\|\s*safe|autoescape|Markup", template.read_text()), template.name
