"""Exports conversations for fine-tuning: JSON lines with `messages` and `images`.

As ms-swift (docs "Custom Dataset") and LLaMA-Factory (`data/README.md`, format "sharegpt" with the tags of OpenAI) take
them: each `<image>` in a message stands for the next entry of `images`. TRL takes the same columns.
"""

import json
import logging
from pathlib import Path
from typing import Any

from roomscout.analysis.episodes import Episode
from roomscout.analysis.exports.finished_run import FinishedRun, Utterance, conversation
from roomscout.runs import RunError

PLACEHOLDER = "<image>"


def write(run: FinishedRun, out: Path) -> list[str]:
    """Write the file, with absolute paths of the views; returns what to know of it.

    Leaves out failed questions and those with a missing view, and logs a warning. Raises RunError if none is left.
    """
    lines = []
    for episode in run.episodes:
        said = conversation(run, episode)
        if episode.row is None or episode.row.failed or not said or said[-1].role != "assistant":
            continue
        if missing := [each.view for each in said if each.view is not None and not each.view.is_file()]:
            logging.warning("%s is missing, so %s is left out: restore it", missing[0], episode.id)
            continue
        lines.append(json.dumps(_line(episode, said), ensure_ascii=False) + "\n")
    if not lines:
        raise RunError(f"{run.folder} has no finished conversation with all views: a policy without a model has none")
    out.write_text("".join(lines), encoding="utf-8")
    left_out = len(run.episodes) - len(lines)
    return [f"left out {left_out} without a complete conversation"] if left_out else []


def _line(episode: Episode, said: list[Utterance]) -> dict[str, Any]:
    row = episode.row
    assert row is not None, "a finished episode has a result"
    return {
        "messages": [{"role": each.role, "content": _content(each)} for each in said],
        "images": [str(each.view) for each in said if each.view is not None],
        "id": episode.question.id,
        "sample": episode.id.sample,
        "status": row.status,
        "score": row.score,
    }


def _content(said: Utterance) -> str:
    """The text after a placeholder for its view. The same word in outside text would stand for one more view."""
    text = said.text.replace(PLACEHOLDER, "< image >")
    return f"{PLACEHOLDER}\n{text}" if said.view is not None else text
