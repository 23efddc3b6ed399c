"""Makes the records of a run folder from the states of questions."""

from collections.abc import Mapping
from dataclasses import replace

from roomscout.agent.policies import PolicyError
from roomscout.agent.state import QuestionState
from roomscout.agent.watching import VideoState
from roomscout.data.question import AnswerKindError
from roomscout.envs.films import FilmLibrary
from roomscout.envs.library import SceneLibrary
from roomscout.runs.journal import Journal
from roomscout.runs.records import RecordedMessage, ResultRow, ScanRecord, image_name


def result_row(state: QuestionState) -> ResultRow:
    """The result of a finished question, scored if it has a ground truth."""
    question = state.question
    try:
        score, more_scores = question.score(state.answer), question.more_scores(state.answer)
    except AnswerKindError as error:
        state.fail("answer kind", str(error))
        score, more_scores = 0.0, {}
    failure = state.error
    return ResultRow(
        number=state.number,
        sample=state.sample,
        id=question.id,
        dataset=question.dataset,
        scene_name=question.scene_name,
        question_type=question.question_type,
        question=question.question,
        ground_truth=question.ground_truth,
        answer=state.answer,
        score=score,
        status=state.status.value,
        failed_part=failure.part if failure else None,
        error=failure.message if failure else None,
        turns=state.turn,
        parse_errors=sum(turn.parse_error is not None for turn in state.turns),
        seconds=round(state.elapsed_s, 3),
        seconds_share=round(state.share_s, 3),
        scores=more_scores,
        measurements=sum(use.metres is not None for turn in state.turns for use in turn.uses),
        options=question.options,
        answer_text=question.text_of(state.answer),
        ground_truth_text=question.text_of(question.ground_truth),
        folder=str(state.episode),
    )


def record_turn(
    journal: Journal, state: QuestionState, library: SceneLibrary | FilmLibrary, waited: Mapping[str, float]
) -> None:
    """Record a question's last turn, with what the engine `waited` before it, and with turn 0 its scan file, if any;
    raises the errors of `journal.turn`."""
    turn = state.turns[-1]
    turn = replace(turn, seconds=replace(turn.seconds, **waited))
    if turn.turn == 0 and (file := library.scan_file(state.question)) is not None:
        turn = replace(turn, scan=ScanRecord(str(file.path), file.sha256, **state.question.frame.columns))
    journal.turn(state.episode, turn, messages_of(state))


def messages_of(state: QuestionState) -> list[RecordedMessage]:
    """The conversation as sent, with the file name of an image in "image", or those of several in "images"; frames of a
    video are in one small image, whose file is in "frames".

    A note in place of an earlier turn's message has that one's text as "text_in_its_turn".
    Raises PolicyError if a message shows another image.
    """
    if isinstance(state, VideoState):
        frames = image_name(0)
        return [
            RecordedMessage(role=each.role, frames=frames, text=each.text)
            if each.shots
            else RecordedMessage(role=each.role, text=each.text)
            for each in state.conversation.messages
        ]
    files = {id(shot.image): image_name(seen.turn, shot.name) for seen in state.observations for shot in seen.images}
    listed = []
    for message, whole in zip(state.shown.messages, state.conversation.messages, strict=True):
        if other := [shot.name for shot in message.shots if id(shot.image) not in files]:
            raise PolicyError(
                f"{state.label}: a message shows the image {other[0]!r}, which is in none of the question's "
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
        listed.append(sent)
    return listed
