"""One question in progress: what a model is asked, what its replies do, and what came of them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from roomscout.agent.actions import find_space
from roomscout.agent.actions.points import SeenPlace
from roomscout.agent.actions.space import ActionSpace
from roomscout.agent.policies import Decision, PolicyError
from roomscout.agent.policies.messages import hidden_message, message_of_all_turns, system_message, turn_message
from roomscout.agent.policies.prompts import Controls, Prompts
from roomscout.agent.policies.replies import parse_action
from roomscout.base.shots import PICTURE
from roomscout.data.benchmark import VideoProtocol
from roomscout.data.boxes import ObjectBox, needed_for
from roomscout.data.question import AnswerKindError
from roomscout.data.questions import Question
from roomscout.envs.actions import CameraAction
from roomscout.envs.environment import ExplorationEnv, Observation
from roomscout.envs.films import FilmLibrary
from roomscout.envs.library import SceneLibrary
from roomscout.envs.object_boxes import in_view
from roomscout.envs.starts import require_in_scan
from roomscout.models import Reply, ReplyFormat
from roomscout.models.conversation import Conversation
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.scene import SceneError
from roomscout.runs.beliefs import Belief, map_score
from roomscout.runs.records import (
    EpisodeId,
    ForcedAnswer,
    RecordedMessage,
    ResultRow,
    Turn,
    TurnSeconds,
    as_scored,
    image_name,
)

if TYPE_CHECKING:
    from roomscout.agent.policies.movers import Mover


class Status(StrEnum):
    """The status of a question. The last three are final."""

    WAITING = "waiting"  # not begun, nothing loaded
    ACTIVE = "active"  # begun and not finished
    ANSWERED = "answered"
    EXHAUSTED = "exhausted"  # out of turns without an answer
    FAILED = "failed"  # scan, renderer or model raised an error


@dataclass(frozen=True)
class Rules(Controls):
    """What a model reads and how it replies, who moves the camera, and which moves and answers count."""

    prompts: Prompts = field(default_factory=Prompts)  # every word that a model reads about a scan
    form: ReplyFormat = field(default_factory=ReplyFormat)  # when a reply is complete, and what constrains it
    mover: "Mover | None" = None
    """Moves the camera in place of the policy, whose answer counts in the last turn alone; None if the policy does."""
    video: VideoProtocol | None = None
    """The protocol by which frames of a video are shown in place of a camera's views: see `VideoQuestion`."""
    native: bool = False  # whether the frames of a video are shown as one video, instead of images
    probe: str = ""  # what asks for a map after each turn, outside the conversation; empty for no maps

    @property
    def space(self) -> ActionSpace:
        """The actions as which replies are read; raises SettingError."""
        return find_space(self.actions)


@dataclass
class QuestionState:
    """A question in progress, one episode: `reset`, then `messages` and `step` until it `is_final`, then `score`. It is
    shown views of a scan, one a turn or all at once.

    Observation i belongs to turn i, as do its images in the conversation. Policies without a model decide themselves:
    see `apply_rules` and `take_turn`.
    """

    number: int  # the question's position in the question list, from 1
    question: Question  # what is asked
    steps: int  # how many moves are allowed, so that turns are 0 to `steps`
    sample: int = 1  # which of the question's answers this is, from 1
    rules: Rules = Rules()  # the rules of the run
    env: ExplorationEnv | None = None  # the scan and the camera, from `begin` to `close`
    observations: list[Observation] = field(default_factory=list)  # what the camera saw before each turn
    turns: list[Turn] = field(default_factory=list)  # the finished turns
    status: Status = Status.WAITING  # how far the question is
    failed_part: str | None = None  # one of FAILED_PART in agent/turns.py, such as "scan" (not found), if it failed
    error: str | None = None  # why it failed, if it did
    path: Sequence[Decision] = ()  # the moves, if who moves knows them as the question begins
    boxes: tuple[ObjectBox, ...] = ()  # those that maps are scored against; none if they are not known or not needed
    without_boxes: str = "its scan has none"  # why there are none
    not_shown: str = ""  # what such a path does not show well of what the question needs
    conversation: Conversation = field(init=False)
    """All messages with all images so far; empty without a model. Its id, which seeds samples, differs between them."""

    def __post_init__(self) -> None:
        again = f" sample {self.sample}" if self.sample > 1 else ""
        self.conversation = Conversation(self.question.id + again)

    @property
    def episode(self) -> EpisodeId:
        """Which answer to which question this is."""
        return EpisodeId(self.number, self.sample)

    @property
    def label(self) -> str:
        """The question's name in the log."""
        return self.episode.label

    @property
    def turn(self) -> int:
        """Index of the next turn."""
        return len(self.turns)

    @property
    def environment(self) -> ExplorationEnv:
        """The `env` of a question in progress."""
        assert self.env is not None, "a question in progress has an environment"
        return self.env

    @property
    def observation(self) -> Observation:
        """The observation of the next turn."""
        assert len(self.observations) == self.turn + 1, f"{self.label}: observation i must belong to turn i"
        return self.observations[-1]

    @property
    def is_last_turn(self) -> bool:
        """Whether the next turn must answer."""
        return self.turn == self.steps

    @property
    def is_final(self) -> bool:
        """Whether the question is finished."""
        return self.status in (Status.ANSWERED, Status.EXHAUSTED, Status.FAILED)

    @property
    def answer(self) -> str | None:
        """The final answer as it is scored; None if there is none."""
        if self.status is not Status.ANSWERED:
            return None
        return self.as_scored(self.turns[-1].action.answer, self.turns[-1].pose)

    def as_scored(self, answer: str | None, pose: CameraPose) -> str | None:
        """What is scored of a valid answer at `pose`, the last one of the turns so far."""
        return as_scored(self.question, answer, pose, self.turns)

    @property
    def asks(self) -> bool:
        """Whether a policy decides in this turn."""
        return self.is_last_turn or not self.rules.at_once

    @property
    def shown(self) -> Conversation:
        """The conversation as it is sent: where earlier turns are not shown, a note stands for their message."""
        messages = list(self.conversation.messages)
        kept = self.rules.keep_views
        turns = sum(message.role == "user" for message in messages)
        if kept is None or turns <= kept + 1:
            return self.conversation
        for turn in range(1, turns - kept):
            observation = self.observations[turn]
            previous = self.turns[turn - 1]
            messages[1 + 2 * turn] = hidden_message(self.rules.prompts, self.question, observation, previous)
        return self.conversation.showing(messages)

    def reset(self, library: SceneLibrary | FilmLibrary, first: Turn | None = None) -> None:
        """Begin at turn 0, or at a recorded one; raises ScanNotFound, SceneError or RenderError."""
        self.begin(self.opened(library, first))

    def opened(self, library: SceneLibrary | FilmLibrary, first: Turn | None = None) -> ExplorationEnv:
        """An environment there, from which to `begin`; its maps have the coordinates that the prompts tell."""
        assert not isinstance(library, FilmLibrary), "films are for questions on video"
        in_scan = self.question.kind.in_scan_coordinates or self.rules.prompts.in_scan_coordinates
        env = ExplorationEnv(library, self.steps, in_scan)
        if first is None:
            env.reset(self.question)
        else:
            images = tuple(shot for shot in first.shots if not shot.name.startswith(PICTURE))
            scene = library.scene_of(self.question)
            require_in_scan(scene, first.pose, f"the run recorded turn 0 at {first.pose.place}")
            pictures = first.shots[len(images) :] or env.pictures_of(self.question)
            env.reset_at(scene, first.pose, images, pictures=pictures)
        return env

    def begin(self, env: ExplorationEnv) -> None:
        """Start in an environment that has been reset; raises SceneError if it lacks what the mover or `boxes` need."""
        self.env = env
        if self.rules.boxes:
            env.tell(env.library.boxes_of(self.question), only_in_view=self.rules.boxes == "boxes-seen")
        if self.rules.probe:
            try:
                self.boxes = env.library.boxes_of(self.question)
            except SceneError as error:
                self.without_boxes = str(error)
        self.observations.append(env.observation)
        self.status = Status.ACTIVE
        if self.rules.mover is not None:
            self.rules.mover.begin(self)

    def shorten(self, path: Sequence[Decision], not_shown: str) -> None:
        """Allow these moves alone, before turn 0; `not_shown` is what they do not show well of what is needed."""
        self.environment.limit(len(path))
        self.path = path
        self.steps = len(path)
        self.not_shown = not_shown
        self.observations = [self.environment.observation]

    def messages(self) -> Conversation:
        """The conversation as it is `shown`, which ends with the message of the current turn, or of all turns."""
        rules = self.rules
        question = self.question
        if not rules.at_once:
            self._ask(self.turn)
        elif not self.conversation.messages:
            self.conversation.append(system_message(rules.prompts, question, self.observations[0]))
            self.conversation.append(message_of_all_turns(rules.prompts, question, self.observations, self.turns))
        seen = [shot for observation in self.observations for shot in observation.shown]
        assert self.conversation.shots == seen, f"{self.label}: the images of turn i must belong to observation i"
        return self.shown

    def _ask(self, turn: int) -> None:
        """Append a turn's message, in turn 0 after the system message, unless it is there."""
        prompts = self.rules.prompts
        if not self.conversation.messages:
            self.conversation.append(system_message(prompts, self.question, self.observations[0]))
        if self.conversation.messages[-1].role != "user":
            previous = self.turns[turn - 1] if turn else None
            self.conversation.append(turn_message(prompts, self.question, self.observations[turn], previous))

    def messages_if_last(self) -> Conversation:
        """The same with the current turn's message as if no moves were left; the conversation stays as it is."""
        last = replace(self.observation, moves_left=0)
        previous = self.turns[-1] if self.turns else None
        return self.shown.asking_instead(turn_message(self.rules.prompts, self.question, last, previous).text)

    def messages_with_probe(self) -> Conversation:
        """The same with the question for a map below the current turn's message."""
        return self.shown.asking_instead(f"{self.shown.messages[-1].text}\n\n{self.rules.probe}")

    def recall(self) -> None:
        """Rebuild the conversation from turns that were recorded before a resume, unless it comes at once."""
        for turn in self.turns if not self.rules.at_once else ():
            self._ask(turn.turn)
            self.conversation.append(turn.reply.message)

    def read(self, reply: Reply, last_turn: bool | None = None) -> Decision:
        """The decision in a reply, by default to the current turn; a model is going to read that it was truncated.
        Raises AnswerKindError or ActionSpaceError."""
        is_last = self.is_last_turn if last_turn is None else last_turn
        place = SeenPlace(self.observation, self.environment.sight)
        parsed = parse_action(reply.text, self.question, is_last, self.rules.space, place)
        if parsed.error is not None and reply.finish_reason == "length":
            truncated = self.rules.prompts.outcome.truncated.format(tokens=reply.generated_tokens)
            parsed = replace(parsed, error=f"{parsed.error}; {truncated}")
        return replace(parsed, reply=reply, points=tuple(place.seen.values()))

    def step(self, reply: Reply) -> Turn:
        """Take a turn with a model's reply to `messages`; raises RenderError, and then the turn can be taken again."""
        return self.take_turn(self.apply_rules(self.read(reply)))

    def score(self) -> float | None:
        """The official score of the answer, 0 to 1; None without a ground truth."""
        return self.question.score(self.answer)

    def apply_rules(self, decision: Decision) -> Decision:
        """A decision with the move that the rules of the run make of it; `requested` keeps what was asked for."""
        rules = self.rules
        wanted = decision.action
        if self.is_last_turn or (rules.mover is None and wanted.done and self.turn >= rules.min_turns):
            return decision
        moved = decision if rules.mover is None else rules.mover.next_move(self)
        action = moved.action.unanswered if moved.action.done else moved.action
        outcome = moved.outcome
        if not rules.translation and action != action.turns_alone:
            action = action.turns_alone
            outcome = None
        requested = wanted if self.asks and decision.error is None and action != wanted else decision.requested
        clamped = decision.clamped
        if not rules.translation:
            keys = rules.space.at_place.keys
            clamped = tuple(value for value in clamped if value.partition(" ")[0] in keys)
        return replace(decision, action=action, outcome=outcome, requested=requested, clamped=clamped)

    def scored(self, belief: Belief) -> Belief:
        """A map of the current turn with its score, if the boxes of the scan are known."""
        if not self.boxes:
            return belief
        env = self.environment
        seen = set[int]()
        first = 0
        for turn in self.turns:
            if turn.belief is not None and turn.belief.score is not None:
                seen = {*turn.belief.score.seen}
                first = turn.turn + 1
        for view in self.observations[first:] if env.library.renderer.name != "blind" else ():
            shown = {id(box) for box in in_view(env.scene, view.pose, view.camera, self.boxes)}
            seen |= {place for place, box in enumerate(self.boxes) if id(box) in shown}
        needed = needed_for(self.question.question, self.question.options, self.boxes)
        score = map_score(belief.objects, self.boxes, self.observation.start, sorted(seen), needed)
        return replace(belief, score=score)

    def take_turn(
        self,
        decision: Decision,
        batch: tuple[str, ...] = (),
        forced: ForcedAnswer | None = None,
        belief: Belief | None = None,
    ) -> Turn:
        """Move, render the next view, and append the turn, unless the decision, one of `apply_rules`, ends the
        question; raises RenderError. `batch` has the ids decided together, `forced` the answer if this were the end,
        and `belief` the map."""
        started = time.perf_counter()
        after = None
        reply = decision.reply
        if not self.ends_with(decision.action):
            env = self.environment
            outcome = decision.outcome
            after = env.step(decision.action) if outcome is None else env.resume(outcome)
        turn = Turn(
            turn=self.turn,
            action=decision.action,
            clamped=decision.clamped,
            parse_error=decision.error,
            move=None if after is None else after.move,
            reply=reply,
            batch=batch or (self.question.id,),
            seconds=TurnSeconds(
                preprocess=round(reply.preprocess_seconds, 4),
                prefill=round(reply.prefill_seconds, 4),
                decode=round(reply.decode_seconds, 4),
                render=0.0 if after is None else round(time.perf_counter() - started, 4),
            ),
            requested=decision.requested,
            fields=dict(decision.fields),
            points=decision.points,
            uses=() if after is None else decision.uses,
            forced=forced,
            belief=belief,
            **self.seen(),
        )
        self.record(turn, after)
        return turn

    def seen(self) -> dict[str, Any]:
        """What a turn records of what it showed: the camera's pose, the images and their names."""
        observation = self.observation
        shots = (*observation.images, *observation.pictures)
        see = tuple(shot.name for shot in shots[1:])
        not_shown = "" if self.turns else self.not_shown
        return {"pose": observation.pose, "see": see, "not_shown": not_shown, "shots": shots}

    def ends_with(self, action: CameraAction) -> bool:
        """Whether an action ends the question: it is done, or no move is left."""
        return action.done or self.is_last_turn

    def record(self, turn: Turn, after: Observation | None) -> None:
        """Append a finished turn and the observation after its move, None if the turn ended the question."""
        assert turn.turn == self.turn and (after is None) == turn.is_final, (
            f"{self.label}: turn {turn.turn} is not the next turn, or does not match its observation"
        )
        if self.conversation.messages and self.conversation.messages[-1].role == "user":
            self.conversation.append(turn.reply.message)
        self.turns.append(turn)
        if after is not None:
            self.observations.append(after)
        else:
            answered = turn.parse_error is None and turn.action.answer is not None
            self.status = Status.ANSWERED if answered else Status.EXHAUSTED

    def fail(self, part: str, message: str) -> None:
        """End the question with an error."""
        self.failed_part = part
        self.error = message
        self.status = Status.FAILED

    def result(self) -> ResultRow:
        """The result of a finished question, scored if it has a ground truth; a user's answer kind may fail it."""
        question = self.question
        try:
            score = question.score(self.answer)
            more_scores = question.more_scores(self.answer)
            answer_text = question.text_beside(self.answer)
            truth_text = question.text_beside(question.ground_truth, is_truth=True)
        except AnswerKindError as error:
            self.fail("answer kind", str(error))
            score, more_scores = 0.0, {}
            answer_text = ""
            truth_text = ""
        # A batched call counts in full for each of its questions in `seconds`, and divided by them in `seconds_share`.
        shares = (turn.reply.seconds / len(turn.batch) + turn.seconds.render for turn in self.turns)
        return ResultRow(
            number=self.number,
            sample=self.sample,
            id=question.id,
            dataset=question.dataset,
            scene_name=question.scene_name,
            question_type=question.question_type,
            question=question.question,
            ground_truth=question.ground_truth,
            answer=self.answer,
            score=score,
            status=self.status.value,
            failed_part=self.failed_part,
            error=self.error,
            turns=self.turn,
            parse_errors=sum(turn.parse_error is not None for turn in self.turns),
            seconds=round(sum(turn.elapsed_s for turn in self.turns), 3),
            seconds_share=round(sum(shares), 3),
            scores=more_scores,
            measurements=sum(use.metres is not None for turn in self.turns for use in turn.uses),
            options=question.options,
            answer_text=answer_text,
            ground_truth_text=truth_text,
            folder=str(self.episode),
        )

    def recorded_messages(self) -> list[RecordedMessage]:
        """The messages as sent, with file names in "image", or several in "images", and what a note replaces as
        "text_in_its_turn". Raises PolicyError if a message shows another image."""
        files = {id(shot.image): image_name(seen.turn, shot.name) for seen in self.observations for shot in seen.shown}
        recorded = []
        for message, whole in zip(self.shown.messages, self.conversation.messages, strict=True):
            others = [shot.name for shot in message.shots if id(shot.image) not in files]
            if others:
                raise PolicyError(
                    f"{self.label}: a message shows the image {others[0]!r}, which is in none of the question's "
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
        """Release the scan and the images, once the result is written."""
        self.env, self.observations, self.path = None, [], ()
        self.turns = [replace(turn, shots=()) for turn in self.turns]
        self.conversation = Conversation(self.conversation.id)
