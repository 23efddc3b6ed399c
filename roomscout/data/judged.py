"""Answers in free text that a language model marks from 1 to 5, with the words and rules of OpenEQA's LLM-Match."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from roomscout.data.answers import Text
from roomscout.data.questions import Question

PROMPTS = Path(__file__).parent / "openeqa"  # those of facebookresearch/open-eqa, under the MIT licence beside them
TEMPERATURE, SEED, MAX_TOKENS = 0.2, 1234, 32  # how OpenEQA asks its judge (openeqa/evaluation/llm_match.py)
TAG = "Your mark:"
JUDGE_URL = "https://api.openai.com/v1"  # where a judge is by default

Ask = Callable[[Sequence[str], Callable[[str], int | None]], Iterable[tuple[int | None, tuple[int, int, int]]]]
"""Asks a judge each prompt: the mark of each reply, None without one, and the tokens read, of these cached, written."""


@dataclass(frozen=True)
class Judged(Text):
    """Any text, which a judge marks: a run does not score it, but `roomscout rescore` with a judge does."""

    name = "judged"
    needs_judge = True

    def score(self, answer: str | float | None, truth: str) -> float:
        """Raises ValueError: there is no score without a judge."""
        raise ValueError("answers of kind judged have no score without a judge: see roomscout rescore")


JUDGED_KIND = Judged()


def prompt_of(question: Question, answer: str) -> str:
    """What the judge is asked about an answer."""
    extra = question.extra_answers
    template = "mmbench-extra" if extra else "mmbench"
    return _template(template).format(
        question=question.question,
        answer=question.ground_truth,
        prediction=answer[: answer.rfind(".") + 1] or answer,  # as OpenEQA cuts it (evaluate-predictions.py)
        extra_answers=list(extra),
    )


def mark_of(reply: str) -> int | None:
    """The mark in a judge's reply: a number alone, or alone on a line after "Your mark:"; None if there is neither."""
    text = reply.strip()
    marked = text if text.isdigit() else text.partition(TAG)[2].partition("\n")[0].strip()
    return int(marked) if re.fullmatch(r"-?[0-9]+", marked) else None


def score_of_mark(mark: int) -> float:
    """The score of a mark: 0 for 1, 1 for 5; marks outside are clipped."""
    return (min(max(mark, 1), 5) - 1) / 4


def prompts_sha256() -> str:
    """The beginning of the hash of the prompts and of how a judge is asked."""
    parts = [_template("mmbench"), _template("mmbench-extra"), f"{TEMPERATURE} {SEED} {MAX_TOKENS}"]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def label_of_judge(label: str, model: str, sha256: str) -> str:
    """The label of an overall with its judge: the model, and `prompts_sha256` or that of a run."""
    return f"{label}_judged_by_{re.sub('[^A-Za-z0-9.-]+', '-', model)}_{sha256}"


def _template(name: str) -> str:
    return (PROMPTS / f"{name}.txt").read_text(encoding="utf-8").strip()
