"""A benchmark of your own: five question types in one record.

    roomscout eval --benchmark examples/toy_benchmark.py:TOY --questions my_questions.jsonl --scan-root my_scans

A row of my_questions.jsonl has VSI-Bench's columns and one of the types below, such as

    {"id": 1, "dataset": "mine", "scene_name": "kitchen", "question_type": "is_there", "ground_truth": "no",
     "question": "Is there a fridge in this room?"}
"""

from roomscout.data.answers import LETTER_KIND, TEXT_KIND, YES_NO_KIND, Number
from roomscout.data.benchmarks import Benchmark, QuestionType

TOY = Benchmark(
    name="toy",
    title="Toy",
    types=(
        QuestionType("is_there", YES_NO_KIND, task="presence", advice="Look in every direction before you say no."),
        QuestionType("is_empty", YES_NO_KIND, task="presence"),
        QuestionType("lamp_count", Number("lamps"), advice="Count each lamp once."),
        QuestionType("which_side", LETTER_KIND, advice="Imagine standing at the first object."),
        QuestionType("colour_of", TEXT_KIND, advice="Answer with one word."),
    ),
)
