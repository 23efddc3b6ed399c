"""Exports conversations for fine-tuning: JSON lines with `messages` and `images`.

There are two forms, which differ in how a message refers to its images. Each image is the next entry of `images`.

- As text: `<image>` in the message, one line each. ms-swift (`Custom-dataset.md` of its docs) and LLaMA-Factory
  (`data/README.md`, format "sharegpt" with the tags of OpenAI) read it.
- As parts: a list with `{"type": "image"}` and the text. TRL reads it (`trl/data_utils.py`,
  `prepare_multimodal_messages`), and puts all images into the first message of a conversation in the other form.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from roomscout.analysis.report.contents import RunContents
from roomscout.runs import RunError

TAG = "<image>"
_TAGS = re.compile(r"<(image|video|audio|bbox|ref-object|cot-process|start-image)>")
"""What these tools replace (ms-swift: `swift/template/base.py`); in a reply or a question it is ordinary text."""


def _write(content: Callable[[str, int], Any], run: RunContents, out: Path) -> tuple[int, list[str]]:
    """Write the conversations with absolute paths of images, each message made by `content` of its text and number of
    images, but those that failed or lack images; returns how many, and remarks. Raises RunError if none is left."""
    if run.facts.frames is not None:
        raise RunError(f"{run.folder} showed frames of videos, of which it has small images alone: export another run")
    written = 0
    remarks = []
    without = 0
    with out.open("w", encoding="utf-8", errors="backslashreplace") as file:  # surrogates as JSON escapes
        for answer in run.finished():
            assert answer.row is not None, "a finished answer has a result"
            if answer.row.failed or not answer.messages or answer.messages[-1]["role"] != "assistant":
                without += 1
                continue
            images = [run.images(answer.episode, message) for message in answer.messages]
            if missing := [path for paths in images for path in paths if not path.is_file()]:
                remarks.append(f"{missing[0]} is missing, so {answer.episode} is left out: restore it")
                continue
            line = {
                "messages": [
                    {"role": message["role"], "content": content(message["text"], len(paths))}
                    for message, paths in zip(answer.messages, images, strict=True)
                ],
                "images": [str(path) for paths in images for path in paths],
                "id": answer.question.id,
                "sample": answer.episode.sample,
                "question_type": answer.question.question_type,
                "scene_name": answer.question.scene_name,
                "status": answer.row.status,
                "score": answer.row.score,
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            written += 1
    if not written:
        raise RunError(
            f"{run.folder} has no finished conversation with all its views: a policy without a model has none"
        )
    if without:
        remarks.append(f"{without} answers are left out: failed, or without a conversation")
    return written, remarks


def _as_text(text: str, images: int) -> str:
    return f"{TAG}\n" * images + _TAGS.sub(r"< \1 >", text)


def _as_parts(text: str, images: int) -> list[dict[str, str]]:
    return [*[{"type": "image"}] * images, {"type": "text", "text": text}]


write_as_text = partial(_write, _as_text)
write_as_parts = partial(_write, _as_parts)
