"""Trajectories as HTML, for notebooks."""

import base64
import io
from html import escape
from typing import TYPE_CHECKING

from PIL import Image

from roomscout.base.shots import VIEW, Shot
from roomscout.data.questions import Question
from roomscout.runs import RunError
from roomscout.runs.records import SavedShot, Turn

if TYPE_CHECKING:
    from roomscout.runs.trajectories import Trajectory

WIDTH_PX = 240
QUALITY = 85
WORDS = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;font-size:smaller;line-height:1.3"
"""Style of a reply. Colours are those of the notebook, light or dark."""


def trajectory_html(trajectory: "Trajectory") -> str:
    """A question with its outcome and a filmstrip of its turns, all text escaped; reasons in place of damaged views."""
    question = trajectory.question
    outcome = trajectory.error or _with_text(question, trajectory.answer)
    if trajectory.score is not None:
        outcome += f", score {trajectory.score:g}, truth {_with_text(question, question.ground_truth)}"
    lines = [question.question, *question.options, f"{trajectory.status}: {outcome}"]
    first, *others = map(escape, lines)
    heading = "<br>".join([f"<b>{first}</b>", *others])
    return f"<p>{heading}</p><div style='display:flex;overflow-x:auto'>{''.join(map(_figure, trajectory.turns))}</div>"


def _with_text(question: Question, answer: str | None) -> str:
    """An answer, and if it is the letter of an option, the option's text."""
    text = question.text_of(answer)
    return f"{answer} ({text})" if text else f"{answer}"


def _figure(turn: Turn) -> str:
    said = f"<pre style='{WORDS}'>{escape(turn.reply.text)}</pre>" if turn.reply.text else ""
    noted = f"<br>{escape(turn.parse_error)}" if turn.parse_error else ""
    images = "".join(_image(turn, shot) for shot in turn.shots)
    about = f"turn {turn.turn}: {escape(turn.action.in_words)}{noted}"
    style = f"margin:4px;flex:0 0 {WIDTH_PX}px;min-width:0;overflow-wrap:anywhere"
    return f"<figure style='{style}'>{images}<figcaption>{about}{said}</figcaption></figure>"


def _image(turn: Turn, shot: Shot | SavedShot) -> str:
    try:
        view = Image.fromarray(shot.image)
    except RunError as error:
        return f"<p>{escape(str(error))}</p>"
    view.thumbnail((WIDTH_PX, WIDTH_PX))
    jpeg = io.BytesIO()  # a notebook stores every filmstrip, and a PNG would be five times as large
    view.save(jpeg, format="JPEG", quality=QUALITY)
    words = "view" if shot.name == VIEW else shot.name
    data = base64.b64encode(jpeg.getvalue()).decode()
    return f"<img alt='{words} of turn {turn.turn}' width='{WIDTH_PX}' src='data:image/jpeg;base64,{data}'>"
