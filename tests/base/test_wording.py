"""Messages name settings in the words of who asked: the command, one of its verbs, a judge, Python or a YAML file."""

from collections.abc import Callable

import pytest

from roomscout.base.wording import COMMAND, PYTHON, YAML, Words, named, words_of, words_of_judge, words_of_verb

ASK, RESUME = words_of_verb(["ask", "room.ply"]), words_of_verb(["resume"])
WORDS: list[tuple[Callable[[], str], dict[str, str]]] = [
    (lambda: named("max_new_tokens"), {"command": "--max-new-tokens", "python": "max_new_tokens"}),
    (lambda: named(scale=0.001), {"command": "--scale 0.001", "python": "scale=0.001", "yaml": "scale: 0.001"}),
    (lambda: named(camera_height=2.0), {"command": "--camera-height 2", "python": "camera_height=2"}),
    (
        lambda: named(engine="openai", base_url="URL"),
        {"command": "--engine openai --base-url URL", "python": 'engine="openai", base_url=URL'},
    ),
    (
        lambda: named(translation=False),
        {"command": "--no-translation", "python": "translation=False", "yaml": "translation: false"},
    ),
    (lambda: named(refill=True), {"command": "--refill", "python": "refill=True", "yaml": "refill: true"}),
    (
        lambda: named(continue_from="run"),
        {"command": "--continue run", "resume": "--continue run", "python": "`roomscout resume` run"},
    ),
    (lambda: named(resume="run"), {"command": "--continue run", "resume": "resume run"}),
    (lambda: named("retry"), {"command": "resume with --continue and --retry-failed"}),
    (lambda: named("ply"), {"command": "--ply", "ask": "--ply", "python": "scan"}),
    (lambda: named(scan="/a.ply"), {"command": "--ply /a.ply", "ask": "/a.ply", "python": "scan /a.ply"}),
    (lambda: f"{named('ask')} asks", {"command": "--ply asks", "ask": "ask asks", "python": "ask asks"}),
    (lambda: named("ask_or_demo"), {"command": "--ply and --demo", "python": "ask"}),
    (lambda: named("api_key_env"), {"command": "--api-key-env", "judge": "--judge-key-env"}),
    (lambda: named(model="MODEL"), {"command": "--model MODEL", "judge": "--judge MODEL"}),
    (lambda: named("retry"), {"judge": "ask for the missing marks again"}),
]
SPEAKERS: dict[str, Words] = {
    "command": COMMAND, "ask": ASK, "resume": RESUME, "python": PYTHON, "yaml": YAML, "judge": words_of_judge(),
}  # fmt: skip
CASES = [(message, speaker, words) for message, by_speaker in WORDS for speaker, words in by_speaker.items()]


@pytest.mark.parametrize(("message", "speaker", "words"), CASES, ids=[f"{who}: {said}" for _, who, said in CASES])
def test_a_setting_has_the_words_of_who_asked(message: Callable[[], str], speaker: str, words: str):
    with words_of(SPEAKERS[speaker]):
        assert message() == words


def test_the_command_speaks_again_once_python_is_done():
    with words_of(PYTHON):
        pass
    assert named("steps") == "--steps"
