"""Draws what one question's camera saw, with the model's words and moves, as one picture.

python examples/draw_exploration.py RUN QUESTION_ID picture.png
"""

import re
import sys
import textwrap

from PIL import Image, ImageDraw, ImageFont

from roomscout import Trajectory, load_trajectories

WIDTH, HEIGHT, MARGIN = 320, 178, 12
LINES, CHARACTERS = 9, 44


def draw(trajectory: Trajectory) -> Image.Image:
    """One column per turn: the view, what the model said, and what it did."""
    turns = trajectory.turns
    size = (len(turns) * (WIDTH + MARGIN) + MARGIN, 40 + HEIGHT + LINES * 18)
    picture = Image.new("RGB", size, "white")
    canvas = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=13)
    question = trajectory.question
    title = f"{question.question}  (truth: {question.ground_truth})"
    canvas.text((MARGIN, 10), title, "black", ImageFont.load_default(size=17))
    for index, turn in enumerate(turns):
        left = MARGIN + index * (WIDTH + MARGIN)
        picture.paste(Image.fromarray(turn.view).resize((WIDTH, HEIGHT)), (left, 40))
        thought = re.sub(r"```\w*", "", turn.reply.text.partition("{")[0]).strip()
        words = [line for part in thought.split("\n") for line in textwrap.wrap(part, CHARACTERS)]
        if len(words) >= LINES:
            words = [*words[: LINES - 4], "...", *words[-2:]]
        for row, line in enumerate([*words, f"Action: {turn.action.in_words}"]):
            colour = "black" if row < len(words) else "#0550ae"
            canvas.text((left, 44 + HEIGHT + row * 16), line, colour, font)
    return picture


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    _, run, question_id, out = sys.argv
    answers = {answer.question.id: answer for answer in load_trajectories(run)}
    if question_id not in answers:
        sys.exit(f"{run} has no question {question_id}; it has {', '.join(answers)}")
    draw(answers[question_id]).save(out)
