"""The first hour with RoomScout, cell by cell: a room, one question, its trajectory, and a policy of your own.

Run it whole from the checkout (`python examples/first_hour.py`), or cell by cell in an editor that knows `# %%`.
It needs no download and no GPU, and leaves its files in `first_hour/` below the current folder.
"""

# %% Make the checkout importable, wherever this runs from.
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from PIL import Image

from roomscout import ask, explore, load_policy
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.state import QuestionState
from roomscout.data.questions import load_questions
from roomscout.envs.actions import CameraAction
from roomscout.rooms import write_rooms

# %% Make a furnished room with questions and exact answers.
folder = Path("first_hour")
write_rooms(folder, rooms=1, seed=1)
questions = load_questions(folder / "questions.jsonl")
scan = min(folder.rglob("*.ply"))

# %% Ask one question. The explorer is a small Qwen3-VL that ships with the package; it is loaded once and reused.
explorer = load_policy("embedded")
trajectory = ask(scan, "How many chair(s) are in this room?", policy=explorer)
print(trajectory.answer, trajectory.status)

# %% Look at what it saw, said and did.
for turn in trajectory.turns:
    thought = turn.reply.text.partition("{")[0].strip()
    print(f"at x {turn.pose.x_m:.1f}, y {turn.pose.y_m:.1f}, heading {turn.pose.heading_deg:.0f} degrees: {thought}")

# %% Save all of its views side by side.
views = [Image.fromarray(turn.view) for turn in trajectory.turns]
strip = Image.new("RGB", (sum(view.width for view in views), views[0].height))
for index, view in enumerate(views):
    strip.paste(view, (index * view.width, 0))
strip.save(folder / "trajectory.png")


# %% Write a policy: look around, then give the same answer to every question.
class LookAround(Policy):
    """Turns left three times, then answers 2, or A."""

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One decision per question."""
        return [Decision(self.action(state)) for state in states]

    def action(self, state: QuestionState) -> CameraAction:
        """What one question does: `state.observation` is what it sees, `state.turn` counts from 0."""
        if state.turn < 3:
            return CameraAction(rotation_angle_degrees=90.0)
        return CameraAction(answer="A" if state.question.letters else "2", done=True)


# %% Run it over a few questions, and compare its scores with the explorer's.
few = questions[:3]
for name, policy in {"LookAround": LookAround, "the explorer": explorer}.items():
    trajectories = explore(few, policy=policy, scan_root=folder)
    print(f"Scores of {name}: {[trajectory.score for trajectory in trajectories]}")
