"""A question that is shown views of a scan, one a turn or all at once."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roomscout.agent.actions.points import SeenPlace
from roomscout.agent.policies import Decision, PolicyError
from roomscout.agent.policies.messages import message_of_all_turns, system_message, turn_message
from roomscout.agent.policies.replies import parse_action
from roomscout.envs.films import FilmLibrary
from roomscout.envs.library import SceneLibrary
from roomscout.models import Reply
from roomscout.models.conversation import Conversation
from roomscout.runs.records import RecordedMessage, Turn, image_name

if TYPE_CHECKING:
    from roomscout.agent.state import QuestionState


class ScanViews:
    """What a question shows, how replies to it are read and what is recorded of it: in each turn the camera's view. See
    also `VideoFrames`, which does the same for videos."""

    def reset(self, state: "QuestionState", library: SceneLibrary | FilmLibrary, first: Turn | None) -> None:
        """Begin at view 0 of the scene, or at a recorded turn 0; raises ScanNotFound, SceneError or RenderError."""
        state.begin(state.opened(library, first))

    def messages(self, state: "QuestionState") -> Conversation:
        """The conversation as `shown`, to which the message of the current turn, or of all turns, is added."""
        rules = state.rules
        question = state.question
        if not rules.at_once:
            _ask(state, state.turn)
        elif not state.conversation.messages:
            state.conversation.append(system_message(rules.prompts, question, state.observations[0]))
            state.conversation.append(message_of_all_turns(rules.prompts, question, state.observations, state.turns))
        seen = [shot for observation in state.observations for shot in observation.shown]
        assert state.conversation.shots == seen, f"{state.label}: the images of turn i must belong to observation i"
        return state.shown

    def recall(self, state: "QuestionState") -> None:
        """Rebuild the conversation, unless all views come in one message."""
        for turn in state.turns if not state.rules.at_once else ():
            _ask(state, turn.turn)
            state.conversation.append(turn.reply.message)

    def read(self, state: "QuestionState", reply: Reply, last_turn: bool) -> Decision:
        """The action in a reply; the model is going to read that it was truncated."""
        place = SeenPlace(state.observation, state.environment.sight)
        parsed = parse_action(reply.text, state.question, last_turn, state.rules.space, place)
        if parsed.error is not None and reply.finish_reason == "length":
            truncated = state.rules.prompts.outcome.truncated.format(tokens=reply.generated_tokens)
            parsed = replace(parsed, error=f"{parsed.error}; {truncated}")
        return replace(parsed, reply=reply, points=tuple(place.seen.values()))

    def shown(self, state: "QuestionState") -> dict[str, Any]:
        """The camera's pose, the images of the turn and their names."""
        observation = state.observation
        shots = (*observation.images, *observation.pictures)
        see = tuple(shot.name for shot in shots[1:])
        not_shown = "" if state.turns else state.not_shown
        return {"pose": observation.pose, "see": see, "not_shown": not_shown, "shots": shots}

    def recorded_messages(self, state: "QuestionState") -> list[RecordedMessage]:
        """The messages with file names in "image", or several in "images", and what a note replaces as
        "text_in_its_turn". Raises PolicyError if a message shows another image."""
        files = {id(shot.image): image_name(seen.turn, shot.name) for seen in state.observations for shot in seen.shown}
        recorded = []
        for message, whole in zip(state.shown.messages, state.conversation.messages, strict=True):
            others = [shot.name for shot in message.shots if id(shot.image) not in files]
            if others:
                raise PolicyError(
                    f"{state.label}: a message shows the image {others[0]!r}, which is in none of the question's "
                    "observations: show images of state.observations"
                )
            names = [files[id(shot.image)] for shot in message.shots]
            sent = RecordedMessage(role=message.role, text=message.text)
            if len(names) == 1:
                sent["image"] = names[0]
            elif names:
                sent["images"] = names
            if message.hidden:
                sent["text_in_its_turn"] = whole.text
            recorded.append(sent)
        return recorded

    def close(self) -> None:
        """Do nothing: views are released with their observations."""


def _ask(state: "QuestionState", turn: int) -> None:
    """Append a turn's message, in turn 0 after the system message, unless it is there."""
    prompts = state.rules.prompts
    if not state.conversation.messages:
        state.conversation.append(system_message(prompts, state.question, state.observations[0]))
    if state.conversation.messages[-1].role != "user":
        previous = state.turns[turn - 1] if turn else None
        state.conversation.append(turn_message(prompts, state.question, state.observations[turn], previous))
