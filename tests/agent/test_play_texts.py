"""What people read and write on their page: words files, thanks, numbers, comments, practice questions."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import RoomScans
from hypothesis import given
from hypothesis import strategies as st

from roomscout.agent.play import LANGUAGES
from roomscout.agent.play.policy import Asked, HumanPolicy
from roomscout.agent.play.practice import _category
from roomscout.agent.play.texts import Texts, Unreadable, words_of
from roomscout.agent.state import QuestionState, Rules
from roomscout.base.errors import SettingError
from roomscout.data.answers import POINT_KIND, Number
from roomscout.data.question import Question
from roomscout.data.questions import load_questions
from roomscout.envs.library import CameraSettings, ScanLibrary
from roomscout.rendering.renderers.raycast import RaycastRenderer

WORDS = Path(__file__).parents[2] / "roomscout" / "agent" / "play" / "words"
METRES = Question("1", "d", "s", "t", "How far?", kind=Number("m"))
COUNT = Question("1", "d", "s", "t", "How many?", kind=Number("objects"))
FOR_ALL = {
    "2": "2", " 2.5 m ": "2.5", "2,5": "2.5", "2.5 meters": "2.5", "2,5m.": "2.5", "1.234,5": "1234.5",
    "1,234.5 m": "1234.5", "1,234,567": "1234567", "0,5": "0.5", ".5": ".5", "−3": "-3", "２，５": "2.5",
}  # fmt: skip
REFUSED = ("", "many", "3 or 4", "2½", "2²", "1 500", "2.5 cm", "-", "1,2,3", "12,34.5", "2 dozen")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_number_is_taken_as_people_write_it_and_sent_as_a_plain_one(language: str):
    words = words_of(language)
    assert {written: words.answer(written, METRES) for written in FOR_ALL} == FOR_ALL
    for number, spellings in words.words["numbers"].items():
        for word in spellings:
            assert words.answer(f" {word.capitalize()} ", COUNT) == number
            assert words.answer(f"{word} {words.words['units']['m'][0]}", METRES) == number
    for written in REFUSED:
        with pytest.raises(Unreadable, match=r"2[.,]5"):
            words.answer(written, METRES)


def test_what_may_be_two_numbers_is_asked_back_in_the_language_that_reads_it_so():
    for language, written, first in (("en", "1,500", "1.500"), ("de", "1.500", "1,500")):
        with pytest.raises(Unreadable, match=rf"{written} .*{first}.* 1500\b"):
            words_of(language).answer(written, METRES)
    assert words_of("en").answer("1.500", METRES) == words_of("de").answer("1,500", METRES) == "1.500"


def test_places_and_moves_take_numbers_as_people_write_them_and_no_other_unit():
    place = Question("1", "d", "s", "t", "Where?", kind=POINT_KIND)
    for written in ("1,5; -2; 0,4", "1,5 -2 0,4", "(1.5, −2, 0.4)", "1.5,-2,0.4", "1,5 m, -2 m, 0,4 m"):
        assert words_of("de").answer(written, place) == "1.5, -2, 0.4"
    for written in ("1,5 2", "", "hier"):
        with pytest.raises(Unreadable, match="drei Zahlen"):
            words_of("de").answer(written, place)
    for name, written, number in (("forward_meters", "zwei Meter", 2.0), ("pitch_angle_degrees", "30,5°", 30.5)):
        assert words_of("de").number(written, name) == number
        for other in ("50 cm", "1e999", "9" * 400, "30 Grad" if number == 2 else "2 m"):
            with pytest.raises(Unreadable, match="0,5"):
                words_of("de").number(other, name)


def places(texts: Any, name: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The keys of all sentences and lists of a words file."""
    if not isinstance(texts, dict) or "other" in texts:
        return [name]
    return [place for key, value in texts.items() for place in places(value, (*name, key))]


WRONG = (None, [None], "", "a {unknown} b", "a {count.x} b", "a { b", {"one": "a"}, {"other": "a", "both": "b"})


def test_a_words_file_has_all_sentences_and_no_others(tmp_path: Path):
    original = yaml.safe_load((WORDS / "en.yaml").read_text())
    path = tmp_path / "own.yaml"
    for number, (*parents, key) in enumerate(places(original)[::3]):
        texts = json.loads(json.dumps(original))
        part = texts
        for parent in parents:
            part = part[parent]
        wrong = WRONG[number // 2 % len(WRONG)]
        del part[key]
        if number % 2:
            part[key] = wrong
        path.write_text(json.dumps(texts))  # which is YAML
        with pytest.raises(SettingError, match=rf"own.yaml: .*{key}"):
            words_of(str(path))
    path.write_text(yaml.safe_dump(original | {"more": "x"}))
    with pytest.raises(SettingError, match="there is no more"):
        words_of(str(path))
    path.write_text(yaml.safe_dump(original | {"language": "de-ab-cd"}))  # at which browsers throw
    with pytest.raises(SettingError, match="language cannot be 'de-ab-cd'"):
        words_of(str(path))
    original["names"]["other"] = "More"
    original["begin"] = "Let us begin"
    path.write_text(yaml.safe_dump(original))
    assert words_of(str(path)).say("begin") == "Let us begin"
    with pytest.raises(SettingError, match=r"cannot be read .* or en or de"):
        words_of(str(tmp_path / "none.yaml"))


def test_thanks_name_the_person_and_nothing_unknown(tmp_path: Path):
    path = tmp_path / "thanks.md"
    path.write_text("# Thanks, {person}\n\n[Done](https://study.invalid/?pid={person})<b>")
    texts = Texts.read("en", None, path, has_names=True)
    shown = texts.thanks_to("ann.a")
    assert "Thanks, ann.a</h1>" in shown and "?pid=ann.a" in shown and "<b>" not in shown
    with pytest.raises(SettingError, match="no names"):
        Texts.read("en", None, path, has_names=False)
    path.write_text("Your code is {code}")
    with pytest.raises(SettingError, match=r"\{code\}: it takes \{person\}"):
        Texts.read("en", None, path, has_names=True)


@pytest.fixture(scope="module")
def state(rooms: RoomScans) -> Any:
    library = ScanLibrary(RaycastRenderer(), CameraSettings((16, 12), 7.5, 1.6, -15.0), rooms.root)
    begun = QuestionState(1, load_questions(rooms.questions)[0], 8, rules=Rules())
    begun.reset(library)
    yield begun
    library.close()


@given(
    comment=st.one_of(st.text(max_size=60), st.sampled_from(['<think>{"answer": "9"', "</think>", '{"done": false}']))
)
def test_a_comment_is_kept_with_the_answer_and_changes_nothing_of_it(state: QuestionState, comment: str):
    asked = Asked(state, {}, [])
    policy = HumanPolicy((), "127.0.0.1", 0, 1)
    assert policy.reply(asked, {}, "two", comment) == ""
    action = asked.outcome.action  # type: ignore[union-attr]
    assert (action.answer, action.done) == ("2", True)
    kept = json.loads(asked.outcome.reply.text).get("comment", "")  # type: ignore[union-attr]
    assert kept == comment.strip().encode(errors="replace").decode()


def test_what_a_check_says_is_what_the_reply_does_and_it_takes_no_turn(state: QuestionState):
    policy = HumanPolicy((), "127.0.0.1", 0, 1)
    asked = Asked(state, {}, [])
    values = {"rotation_angle_degrees": "30 degrees", "forward_meters": "-0,5"}
    parts = policy.check(asked, values, None)["parts"]
    assert [(part["way"], part["side"], part["amount"]) for part in parts] == [
        ("rotation_angle_degrees", "plus", 30.0), ("forward_meters", "minus", 0.5),
    ]  # fmt: skip
    assert policy.check(asked, {}, "zwei")["error"] and not asked.replied.is_set()
    assert policy.reply(asked, values, None) == ""
    assert asked.outcome.action.forward_meters == -0.5  # type: ignore[union-attr]
    assert "too long" in str(policy.reply(Asked(state, {}, []), {}, "2", "x" * 3000))


@pytest.mark.parametrize("language", LANGUAGES)
def test_practice_never_asks_about_what_the_next_question_names(language: str, rooms: RoomScans):
    words = words_of(language)
    objects = words.words["practice"]["objects"]
    for question in load_questions(rooms.questions):
        for practised in range(3):
            category = _category(question, words.words, practised)
            assert category not in " ".join((question.question, *question.options)).lower()
    own = replace(COUNT, question=objects["window"]["question"])
    assert {_category(own, words.words, practised) for practised in range(9)} == set(objects) - {"window"}
