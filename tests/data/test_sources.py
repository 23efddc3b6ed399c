"""Whose questions a run asks: only a benchmark's own rows have its label and its title."""

from collections import Counter
from pathlib import Path

import pytest
from conftest import RoomScans, run_in_process, vsi_question
from result_rows import result_row

from roomscout.analysis.compare.leaderboard import markdown_of, standing_of, tables_of
from roomscout.data.benchmarks.vsi_bench import BENCHMARK as VSI_BENCH
from roomscout.data.questions import LIST, Question, QuestionSource
from roomscout.data.sources import Source, named_by, source_of
from roomscout.runs.reader import RunReader
from roomscout.scoring.summary import label_of, reference_lines, summarize


def rows_like_vsi_bench(excluded: bool = True) -> list[Question]:
    """As many questions of each type, about as many scenes of each dataset, as VSI-Bench has."""
    scenes = [(name, f"{name}_{place}") for name, count in VSI_BENCH.scenes.items() for place in range(count)]
    types = [name for name, count in VSI_BENCH.counts.items() for _ in range(count)]
    kept = [name for name in types if excluded or name not in VSI_BENCH.excluded]
    return [
        vsi_question(str(place), *scenes[place % len(scenes)], name, "?", (), "A") for place, name in enumerate(kept)
    ]


@pytest.mark.parametrize("excluded", [True, False])
def test_a_file_with_all_rows_of_vsi_bench_is_vsi_bench(excluded: bool):
    source = source_of(QuestionSource("copies/test.jsonl", rows_like_vsi_bench(excluded)), VSI_BENCH)
    benchmark = named_by(source, VSI_BENCH)
    assert source.own and benchmark.title == "VSI-Bench"
    assert str(label_of(VSI_BENCH.scan_types, benchmark, {"scannet": 4512})) == "overall_7_task"


def test_other_questions_have_the_name_of_their_file():
    rows = rows_like_vsi_bench()[:500]
    benchmark = named_by(source_of(QuestionSource("/data/my rooms/few.csv", rows), VSI_BENCH), VSI_BENCH)
    label = label_of(VSI_BENCH.scan_types, benchmark)
    assert (benchmark.title, str(label)) == ("my rooms/few.csv", "my_rooms_few_overall_7_task")
    assert label.in_words(list("1234567"), benchmark) == "mean of 7 tasks of my rooms/few.csv"
    assert str(label_of(["object_counting"], benchmark)).startswith("my_rooms_few_overall_1_task_without_")
    assert str(label_of(["open"], benchmark)) == "my_rooms_few_overall_over_questions"
    assert source_of(QuestionSource(LIST, rows), VSI_BENCH).name == "own questions"


def test_a_run_over_a_file_of_ones_own_is_nowhere_called_vsi_bench(rooms: RoomScans, tmp_path: Path):
    run = run_in_process(rooms.config(tmp_path, steps=0))
    reader = RunReader(run)
    assert reader.facts.source == Source(
        reader.benchmark.title, False, Counter(row["question_type"] for row in rooms.rows), reader.facts.source.sha256
    )
    assert "official" not in reader.facts.protocol and "VSI-Bench scoring" in reader.facts.protocol
    assert reader.benchmark.title == f"{rooms.root.name}/{rooms.questions.name}"
    label = reader.summary.to_json()["asked"]["overall_label"]
    assert "_few_overall_4_task_without_" in label and not label.startswith("overall")
    board = markdown_of(tables_of([standing_of(run)]))
    assert f"## {reader.benchmark.title}, scored as VSI-Bench" in board and "official" not in board
    assert "- Not a result of VSI-Bench: mean of 4 tasks" in board


def test_a_file_is_never_compared_with_published_scores():
    rows = [
        result_row(each.question_type, 1.0, id=str(number))
        for number, each in enumerate(rows_like_vsi_bench(excluded=False))
    ]
    own, file = (named_by(Source("few.csv", own, {}, ""), VSI_BENCH) for own in (True, False))
    assert reference_lines(summarize(rows, own), own) and not reference_lines(summarize(rows, file), file)
