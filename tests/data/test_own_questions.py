"""A question in the user's own words: its type, its options and its ground truth."""

import re
from pathlib import Path

import pytest

from roomscout.base.errors import in_words
from roomscout.data.questions import Question, QuestionError, ask_one, load_questions

SAMPLE = Path(__file__).parents[1] / "fixtures" / "vsi_bench_sample.jsonl"


@pytest.mark.parametrize("asked", load_questions(SAMPLE), ids=lambda asked: asked.id)
def test_the_benchmarks_wording_gives_the_type(asked: Question) -> None:
    assert ask_one(asked.question, "s", asked.options).question_type == asked.question_type


@pytest.mark.parametrize(("truth", "letter"), [("left", "A"), ("Right", "B"), ("b", "b"), ("B. right", "B")])
def test_a_ground_truth_may_be_the_text_of_an_option(truth: str, letter: str) -> None:
    assert ask_one("Where?", "s", ["left", "right"], ground_truth=truth).ground_truth == letter
    assert ask_one("Where?", "s", ["A. left", "B. right"], ground_truth=truth).ground_truth == letter


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"question": " "}, "^--question: ' ': the question is empty"),
        ({"question_type": "chess"}, "^question_type 'chess' is unknown"),
        ({"question_type": "route_planning"}, "^--question: .* at least two options, but has 0"),
        ({"question_type": "open", "options": ["a", "b"]}, "^--question: .* open takes no options"),
        ({"options": ["A. red", "blue"]}, "^--options: .*letter"),
        ({"options": ["red"]}, "^--question: .* at least two options, but has 1"),
        ({"options": ["red", "blue"], "ground_truth": "C"}, "^--ground-truth: .*'C' .* is not one of the letters A, B"),
        (
            {"question_type": "object_counting", "ground_truth": "many"},
            "^--ground-truth: .*'many' .* is not a finite numb",
        ),
    ],
)
def test_an_invalid_own_question_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(QuestionError) as refused:
        ask_one(**{"question": "What colour is the sofa?", "scene_name": "s", **arguments})
    assert re.search(message, in_words(refused.value))
