"""The messages of an episode: templates of `Prompts`, filled in with a question and its observations."""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from roomscout.agent.actions.metric import METRIC
from roomscout.agent.policies.prompts import ANY_TYPE, OutcomePrompts, Prompts
from roomscout.data.questions import Question
from roomscout.envs.actions import HEIGHT_LIMIT_M, MOVE_LIMIT_M, ROTATION_LIMIT_DEG
from roomscout.envs.environment import Observation
from roomscout.models.conversation import Message
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.modalities.modality import SCAN_ORIGIN
from roomscout.runs.records import Turn


def system_message(prompts: Prompts, question: Question, observation: Observation) -> Message:
    """The first message: the actions, the reply format and what the camera shows; its pitch is the observation's."""
    return Message("system", _system_text(prompts, question, observation.camera, observation.pose.pitch_deg))


def opening_text(prompts: Prompts, question: Question, camera: Intrinsics, pitch_deg: float) -> str:
    """All text before the first reply, except the camera's pose and the remaining moves."""
    return _system_text(prompts, question, camera, pitch_deg) + _question_text(prompts, question)


def turn_message(prompts: Prompts, question: Question, observation: Observation, previous: Turn | None) -> Message:
    """The user message with an observation; `previous` is the turn that led to it, None for turn 0."""
    opening = _question_text(prompts, question) if previous is None else _outcome(prompts.outcome, previous)
    where = _joined(_extent(prompts, question, observation), _position(prompts, question, observation))
    template = prompts.boxes if previous is None else ""
    boxes = _boxes(prompts, template or prompts.boxes_seen, question, observation, observation.told_before)
    parts = filter(None, [_pictures(prompts, observation), opening, where, boxes, _turns_left(prompts, observation)])
    return Message("user", "\n\n".join(parts), observation.shown)


def hidden_message(prompts: Prompts, question: Question, observation: Observation, previous: Turn) -> Message:
    """The user message of an earlier turn whose images are no longer shown: the outcome, the position and the boxes."""
    parts = (prompts.hidden.format(number=observation.turn), _outcome(prompts.outcome, previous))
    text = _joined(*parts, _position(prompts, question, observation))
    boxes = _boxes(prompts, prompts.boxes_seen, question, observation, observation.told_before)
    return Message("user", "\n\n".join(filter(None, (text, boxes))), hidden=len(observation.images))


def message_of_all_turns(
    prompts: Prompts, question: Question, observations: Sequence[Observation], turns: Sequence[Turn]
) -> Message:
    """The user message with all observations under the numbers of their views; `turns` led from each to the next."""
    outcomes = ["", *(_outcome(prompts.outcome, turn) for turn in turns)]
    views = [
        _joined(prompts.view.format(number=observation.turn), outcome, _position(prompts, question, observation))
        for observation, outcome in zip(observations, outcomes, strict=True)
    ]
    extent = _extent(prompts, question, observations[0])
    last = _turns_left(prompts, observations[-1])
    boxes = _boxes(prompts, prompts.boxes or prompts.boxes_seen, question, observations[-1])
    pictures = _pictures(prompts, observations[0])
    parts = filter(None, [pictures, _question_text(prompts, question), extent, "\n".join(views), boxes, last])
    return Message(
        "user", "\n\n".join(parts), tuple(shot for observation in observations for shot in observation.shown)
    )


def _system_text(prompts: Prompts, question: Question, camera: Intrinsics, pitch_deg: float) -> str:
    limits = {"rotation": ROTATION_LIMIT_DEG, "move": MOVE_LIMIT_M, "height": HEIGHT_LIMIT_M}
    ranges = {f"{name}_limit": f"{limit:g}" for name, limit in limits.items()}
    return prompts.system.format(
        **ranges,
        action=METRIC.example(),
        actions=METRIC.lines.format(**ranges),
        answer_form=question.kind.form(question.letters),
        advice=prompts.advice.get(question.question_type) or prompts.advice.get(ANY_TYPE, ""),
        horizontal_fov=_degrees(camera.horizontal_fov_deg),
        vertical_fov=_degrees(camera.vertical_fov_deg),
        view_width=camera.width,
        view_height=camera.height,
        pitch=f"{pitch_deg:g}",
    )


def _degrees(angle_deg: float) -> str:
    """An angle to the degree, below 10 degrees to a tenth."""
    return f"{angle_deg:.0f}" if angle_deg >= 9.95 else f"{angle_deg:.1f}"


def _pictures(prompts: Prompts, observation: Observation) -> str:
    return _joined(*(prompts.picture.format(number=number + 1) for number in range(len(observation.pictures))))


def _question_text(prompts: Prompts, question: Question) -> str:
    lines = [prompts.opening.format(question=question.question)]
    if question.options:
        lines.append(prompts.options.format(options="\n".join(question.options)))
    return "\n".join(lines)


def _outcome(words: OutcomePrompts, turn: Turn) -> str:
    """The outcome of the last turn: an answer that did not count, reply errors, clamped numbers, rotation and move."""
    lines = []
    if turn.requested is not None and turn.requested.done:
        lines.append(words.not_counted)
    if turn.parse_error:
        lines.append(words.unreadable.format(error=turn.parse_error))
    if turn.clamped:
        lines.append(words.clamped.format(values=", ".join(turn.clamped)))
    assert turn.move is not None, "a turn that did not end the question has a move"
    lines += [words.measured.format(result=use.result) for use in turn.uses]
    move = turn.move
    turned = turn.turned_deg
    if turned:
        lines.append(words.turned.format(degrees=abs(turned), side="left" if turned > 0 else "right"))
    else:
        lines.append(words.not_turned)
    if move.pose.pitch_deg != turn.pose.pitch_deg:
        pitch = move.pose.pitch_deg
        lines.append(words.looks.format(degrees=abs(pitch), side="up" if pitch >= 0 else "down"))
    if move.blocked or move.clipped:
        stopped = words.blocked if move.blocked else words.clipped
        lines.append(stopped.format(moved_m=move.moved_m, requested_m=move.requested_m))
    elif move.requested_m:
        lines.append(words.moved.format(moved_m=move.moved_m))
    else:
        lines.append(words.not_moved)
    return _joined(*lines)


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _extent(prompts: Prompts, question: Question, observation: Observation) -> str:
    scan = observation.extent
    start = scan if question.kind.in_scan_coordinates else observation.extent_from_start
    ranges = {"x": scan.x_m, "y": scan.y_m, "start_x": start.x_m, "start_y": start.y_m}
    return prompts.extent.format(**{f"{name}{end}": values[end] for name, values in ranges.items() for end in (0, 1)})


def _position(prompts: Prompts, question: Question, observation: Observation) -> str:
    pose = observation.pose
    floor_z_m = observation.extent.floor_z_m
    in_scan = question.kind.in_scan_coordinates
    start = pose if in_scan else observation.start.relative(pose)
    return prompts.position.format(
        x=pose.x_m,
        y=pose.y_m,
        height=pose.z_m - floor_z_m,
        heading=round(pose.heading_deg) % 360,
        start_x=start.x_m,
        start_y=start.y_m,
        start_heading=round(start.heading_deg) % 360,
        floor=f", which is at z {floor_z_m:z.1f} m" if in_scan else "",
    )


def _boxes(prompts: Prompts, template: str, question: Question, observation: Observation, first: int = 0) -> str:
    """The objects told from the `first` one on, by name, in the coordinates of the position that the model reads.
    Empty without a template."""
    if not template or not observation.objects[first:]:
        return prompts.no_boxes.format() if template else ""
    in_scan = question.kind.in_scan_coordinates or prompts.in_scan_coordinates
    origin = SCAN_ORIGIN if in_scan else observation.start
    listed = "\n".join(prompts.box.format(**values) for values in told_boxes(observation, origin, first))
    start = origin.relative(observation.start)
    place = {"start_x": start.x_m, "start_y": start.y_m, "start_heading": round(start.heading_deg) % 360}
    return template.format(objects=listed, **place)


def told_boxes(observation: Observation, origin: CameraPose, first: int = 0) -> list[dict[str, Any]]:
    """What is told of the objects from the `first` one on, by name: places in metres from an origin, sizes in metres,
    headings in degrees. Objects of one name are numbered in the order in which they are told."""
    total = Counter(box.name for box in observation.objects)
    times = Counter[str]()
    told: list[tuple[str, dict[str, Any]]] = []
    for box in observation.objects:
        times[box.name] += 1
        name = f"{box.name} {times[box.name]}" if total[box.name] > 1 else box.name
        length, width, tall, heading_deg = box.as_standing
        pose = origin.relative(CameraPose(*box.center, heading_deg))
        height = pose.z_m - observation.extent.floor_z_m
        heading = round(pose.heading_deg) % 180
        values = {"height": height, "length": length, "width": width, "tall": tall, "heading": heading}
        told.append((box.name, {"name": name, "x": pose.x_m, "y": pose.y_m, **values}))
    return [values for _, values in sorted(told[first:], key=itemgetter(0))]


def _turns_left(prompts: Prompts, observation: Observation) -> str:
    left = observation.moves_left
    if not left:
        return prompts.last_turn.format()
    moves = f"{left} move{'' if left == 1 else 's'}"
    return prompts.remaining_turns.format(turn=observation.turn, moves=moves, left=left)
