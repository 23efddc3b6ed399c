"""Trajectories as HTML, for notebooks."""

import base64
import io
from html import escape
from typing import TYPE_CHECKING

from PIL import Image

from roomscout.runs import RunError
from roomscout.runs.records import Turn

if TYPE_CHECKING:
    from roomscout.runs.trajectories import Trajectory

WIDTH_PX = 240


def trajectory_html(trajectory: "Trajectory") -> str:
    """A question with its options and outcome, and a filmstrip of its turns: view, words and action of each.

    All text is escaped. A view whose file is missing or damaged is replaced by the reason.
    """
    question = trajectory.question
    score = "" if trajectory.score is None else f", score {trajectory.score:g}, truth {question.ground_truth}"
    lines = [
        question.question,
        *question.options,
        f"{trajectory.status}: {trajectory.error or trajectory.answer}{score}",
    ]
    heading = "<br>".join(map(escape, lines))
    return f"<p>{heading}</p><div style='display:flex;overflow-x:auto'>{''.join(map(_figure, trajectory.turns))}</div>"


def _figure(turn: Turn) -> str:
    said = f"<pre style='white-space:pre-wrap'>{escape(turn.reply.text)}</pre>" if turn.reply.text else ""
    noted = f"<br>{escape(turn.parse_error)}" if turn.parse_error else ""
    about = f"turn {turn.turn}: {escape(turn.action.in_words)}{noted}"
    style = f"margin:4px;flex:0 0 {WIDTH_PX}px"
    return f"<figure style='{style}'>{_image(turn)}<figcaption>{about}{said}</figcaption></figure>"


def _image(turn: Turn) -> str:
    try:
        view = Image.fromarray(turn.view)
    except RunError as error:
        return f"<p>{escape(str(error))}</p>"
    view.thumbnail((WIDTH_PX, WIDTH_PX))
    png = io.BytesIO()
    view.save(png, format="PNG")
    data = base64.b64encode(png.getvalue()).decode()
    return f"<img alt='view of turn {turn.turn}' width='{WIDTH_PX}' src='data:image/png;base64,{data}'>"
