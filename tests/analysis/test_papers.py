"""What papers take: LaTeX that compiles whatever names hold, and plots as SVG and PDF that are legible alone."""

import itertools
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from conftest import run_main
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageFont
from result_rows import result_row

from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.pdf import write_plot
from roomscout.analysis.report.plots import plots_of
from roomscout.analysis.report.svg import FONT_PX, Disc, Drawing, Outline, Words
from roomscout.base.tables import Table, latex_text
from roomscout.base.text import escaped, in_latex
from roomscout.data.benchmarks import find_benchmark
from roomscout.runs.costs import Cost, total
from roomscout.runs.reader import RunReader
from roomscout.scoring.intervals import FEWEST_SCENES, differences

HOSTILE = "a_b & 5 % $x$ #1 {y} ~z ^2 \\w [*] <0.001> | `t` --flag 20° ± 3 × −4 ≤ “é” ąβ模🏠 \x1b\u202e"
SPECIAL = re.compile(r"(?<!\\)[&%$#_{}~^]")
FONT = ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", FONT_PX)


def read_back(latex: str) -> str:
    """The text that LaTeX of ASCII text shows."""
    names = {
        "textbackslash": "\\",
        "textasciitilde": "~",
        "textasciicircum": "^",
        "textbar": "|",
        "textasciigrave": "`",
    }
    latex = re.sub(r"\\(text[a-z]+)\{\}", lambda found: f"\0{ord(names[found[1]])};", latex)
    latex = re.sub(r"\\([&%$#_{}])", lambda found: f"\0{ord(found[1])};", latex)
    latex = re.sub(r"\$([<>-])\$", r"\1", latex).replace("{-}", "-")
    latex = re.sub(r"\{([\[\]*])\}", r"\1", latex)
    assert not SPECIAL.search(latex) and "\\" not in latex
    return re.sub("\0([0-9]+);", lambda found: chr(int(found[1])), latex)


@given(st.text(st.characters(max_codepoint=0x7E)))
def test_latex_shows_the_characters_of_any_text(text: str):
    assert read_back(in_latex(text).replace("-{}-", "{-}{-}")) == escaped(text)


def hostile_table(rows: int) -> Table:
    return Table([HOSTILE, "B - A"], [[HOSTILE, "-1.5"]] * rows, overall=True)


def test_a_latex_table_has_the_rules_of_booktabs_and_no_vertical_line():
    lines = hostile_table(3).latex(HOSTILE)
    assert [line for line in lines if "rule" in line] == [r"\toprule", r"\midrule", r"\midrule", r"\bottomrule"]
    assert r"\begin{tabular}{p{0.45\linewidth}r}" in lines
    rows = [line for line in lines if line.endswith(r" \\")]
    assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [1] * 4
    assert rows[1].endswith(r"& $-$1.5 \\") and not re.search(r"\{tabular\}(\[b\])?\{[^}]*\|", "".join(lines))


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
@pytest.mark.parametrize("columns", ["onecolumn", "twocolumn"])
def test_latex_of_hostile_names_compiles_and_fits_the_page(columns: str, tmp_path: Path):
    wide = Table(["model of the run", *["object counting"] * 12], [["model", *["41.2 (38.0 to 44.1)"] * 12]])
    text = latex_text({"wide": wide, **{f"{HOSTILE} {rows}": hostile_table(rows) for rows in (1, 60)}})
    packages = rf"\documentclass[{columns}]{{article}}\usepackage{{booktabs,graphicx}}"
    (tmp_path / "all.tex").write_text(rf"{packages}\begin{{document}}{text}\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


@pytest.fixture(scope="module")
def paper(one_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What --plots writes of the six rooms."""
    folder = tmp_path_factory.mktemp("paper") / "plots"
    assert run_main(["report", str(one_run), "--plots", str(folder)]).returncode == 0
    return folder


def plots(run: Path) -> dict[str, Drawing]:
    contents = RunContents.read(run)
    entries = [contents.answer(episode).entry for episode in contents.episodes]
    large = total([entry.cost for entry in entries], None)
    values = {**vars(large), "generated_tokens": 145_292, "reused_tokens": 12_345_678}
    return {plot.title: plot.drawing for plot in plots_of(entries, contents.summary, Cost(**values))}


def test_each_plot_of_a_report_is_written_as_svg_and_pdf(one_run: Path, paper: Path):
    titles = set(plots(one_run)) - {"Tokens by kind"}  # of which this run has none
    names = {re.sub(r"\W+", "-", title.lower()) for title in titles}
    assert len(names) >= 5
    for suffix in (".svg", ".pdf"):
        assert {path.stem for path in paper.glob(f"*{suffix}")} == names


def test_a_plot_is_legible_without_a_page(paper: Path):
    for path in paper.glob("*.svg"):
        text = path.read_text()
        picture = ElementTree.fromstring(text)
        assert "var(" not in text and "class=" not in text and "style=" not in text
        assert (picture.get("font-family"), picture.get("font-size")) == ("sans-serif", str(FONT_PX))
        assert picture[0].get("fill") == "#fff" and text.count("font-size") == 1
        assert {each.get("fill") for each in picture if any(child.tag.endswith("text") for child in each)} == {"#000"}


def test_the_fonts_of_a_pdf_are_embedded_as_truetype(paper: Path):
    for path in paper.glob("*.pdf"):
        data = path.read_bytes()
        assert b"/FontFile2" in data and b"/CIDFontType2" in data and b"/Type3" not in data


def test_letters_that_the_font_of_a_pdf_lacks_are_said_in_a_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
):
    drawing = Drawing(100, 100, "a plot")
    drawing.text(10, 10, "模")
    write_plot(drawing, tmp_path / "plot")
    assert "plot.pdf has boxes for letters that its font lacks" in caplog.text and not recwarn.list
    assert "模" in (tmp_path / "plot.svg").read_text()


def box(shape: Outline | Disc | Words) -> tuple[float, float, float, float]:
    """The edges of what a shape covers, of a text in DejaVu Sans, the font of the PDF."""
    if isinstance(shape, Words):
        width = FONT.getlength(shape.text)
        if shape.turned:
            return shape.x - FONT_PX * 0.8, shape.y - width / 2, shape.x + 2, shape.y + width / 2
        start = shape.x - {"start": 0, "middle": width / 2, "end": width}[shape.anchor]
        return start, shape.y - FONT_PX * 0.8, start + width, shape.y + 2
    assert isinstance(shape, Outline)
    across, down = zip(*shape.points, strict=True)
    return min(across), min(down), max(across), max(down)


def overlaps(drawing: Drawing) -> Iterator[tuple[Any, Any]]:
    """Texts that lie over another text or a bar, or leave the picture."""
    texts = [shape for shape in drawing.shapes if isinstance(shape, Words)]
    bars = [shape for shape in drawing.shapes if isinstance(shape, Outline) and shape.look.startswith("bar")]
    for one, other in itertools.chain(itertools.combinations(texts, 2), itertools.product(texts, bars)):
        (left, top, right, bottom), (start, over, end, under) = box(one), box(other)
        if left < end and start < right and top < under and over < bottom:
            yield one.text, other
    for text in texts:
        left, top, right, bottom = box(text)
        if left < 0 or top < 0 or right > drawing.width + 1 or bottom > drawing.height:
            yield text.text, "the edge"


def test_no_text_of_a_plot_lies_over_another_or_on_a_bar(one_run: Path):
    assert {title: list(overlaps(drawing)) for title, drawing in plots(one_run).items()} == {
        title: [] for title in plots(one_run)
    }


def test_plots_have_words_and_no_names_of_fields(one_run: Path):
    texts = [shape.text for drawing in plots(one_run).values() for shape in drawing.shapes if isinstance(shape, Words)]
    assert "object counting" in texts and not [text for text in texts if "_" in text]


def test_the_appendix_has_all_conditions_of_a_run(one_run: Path, paper: Path):
    text = (paper / "appendix.md").read_text()
    facts = RunReader(one_run).facts
    for name in {**facts.conditions, **facts.answerer, **facts.scoring, **facts.packages}:
        assert f"| {name.replace('_', ' ')} |" in text
    assert "| answerer | seed | 0 |" in text and "| cost | generated tokens |" in text
    assert (paper / "appendix.tex").read_text().count(r"\\") == len(text.splitlines()) - 2 + 2  # with head and caption


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("plots", "--plots .* is in the run folder"),
        (".", "--plots .* is in the run folder"),
        ("report_plots", ""),
        ("results.csv", "results.csv"),
    ],
)
def test_plots_change_no_file_of_a_run(one_run: Path, tmp_path: Path, place: str, message: str):
    run = Path(shutil.copytree(one_run, tmp_path / "run"))
    done = run_main(["report", str(run), "--plots", str(run / place)])
    assert done.returncode == (2 if message else 0) and re.search(message, done.stderr)
    assert (run / "results.csv").read_bytes() == (one_run / "results.csv").read_bytes()


def compared(unlike: Sequence[bool]) -> Any:
    """The difference in the overall of two runs, of which the second is better in some of the scenes."""

    def rows(scores: Sequence[float]) -> list[Any]:
        return [result_row("object_counting", score, scene_name=str(scene)) for scene, score in enumerate(scores)]

    return differences(rows([0.0] * len(unlike)), rows([*map(float, unlike)]), find_benchmark("vsi-bench"))[-1]


@pytest.mark.parametrize("tested", [1, 3])
@pytest.mark.parametrize("scenes", [1, 5, 6, 9, 10, 12])
def test_scenes_cannot_show_a_difference_if_no_exchange_of_them_is_rare_enough(scenes: int, tested: int):
    """The smallest p is that of all exchanges, counted one by one."""
    for unlike in range(1, scenes + 1):
        found = compared([place < unlike for place in range(scenes)])
        changes = np.array(list(itertools.product((1, -1), repeat=unlike)))
        smallest = min(1.0, tested * float(np.mean(abs(changes.sum(axis=1)) == unlike)))
        powerless = scenes < FEWEST_SCENES or smallest >= 0.05
        said = found.cannot_show(tested)
        assert bool(said) == powerless
        assert not powerless or f"p cannot be below {smallest:.3f}" in said


def test_how_many_scenes_it_takes_is_said():
    assert compared([True] * 6).cannot_show(1) == (
        "6 scenes cannot show a difference: p cannot be below 0.031, and an interval and p below 0.05 take 10 scenes"
    )
    assert compared([True] * 3 + [False] * 9).cannot_show(1) == (
        "3 of 12 scenes differ, and 3 scenes cannot show a difference: p cannot be below 0.250, and an interval and p "
        "below 0.05 take 6 scenes"
    )
