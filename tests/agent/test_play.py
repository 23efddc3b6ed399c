"""People in place of a model: a game in headless Chromium, and what its server takes and sends."""

import csv
import http.client
import json
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import PHONE, OpenPage
from conftest import RoomScans, only_run, run_main, served_by_the_command
from PIL import Image
from planned import changed, checked, from_flags, run_settings
from waiting import wait_until

from roomscout.agent.actions import SPACES
from roomscout.agent.play.page import aimed, controls_of, turn_shown
from roomscout.agent.play.policy import Asked, HumanPolicy
from roomscout.agent.play.texts import words_of
from roomscout.agent.state import QuestionState, Rules
from roomscout.command.words import in_verbs
from roomscout.data.benchmarks.vsi_bench import BENCHMARK as VSI_BENCH
from roomscout.data.questions import Question, load_questions
from roomscout.edge.resuming import saved_settings
from roomscout.edge.settings import flags_giving
from roomscout.envs.library import CameraSettings, ScanLibrary
from roomscout.models.conversation import Conversation
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId
from roomscout.scoring import agreement

TRUTH = "73.625"
"""A ground truth that nothing else of a page says."""


@pytest.fixture(scope="module")
def few(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> RoomScans:
    """A question with a number, one with options and one with yes or no, about one room."""
    rows = [row for row in rooms.rows if row["scene_name"] == rooms.rows[0]["scene_name"]]
    number = next(row for row in rows if row["options"] is None) | {"id": "1", "ground_truth": TRUTH}
    choice = max((row for row in rows if row["options"]), key=lambda row: (len(row["options"]), len(row["question"])))
    choice |= {"id": "2"}
    yes_no = number | {"id": "3", "question_type": "presence", "question": "Is there a bed?", "ground_truth": "yes"}
    path = tmp_path_factory.mktemp("few") / "few.jsonl"
    kinds = [{}, {}, {"answer_kind": "yes_no"}]
    rows = [row | more for row, more in zip([number, choice, yes_no], kinds, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RoomScans(rooms.root, path)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@dataclass
class Session:
    """A run of people that is served."""

    port: int
    log_root: Path

    def ask(self, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        """The status and the JSON, or the bytes, at an address; posts the body if there is one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        address = f"/{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
        posted = {} if body is None else {"body": json.dumps(body), "headers": {"Content-Type": "application/json"}}
        connection.request("GET" if body is None else "POST", address, **posted)
        reply = connection.getresponse()
        content = reply.read()
        is_json = reply.getheader("Content-Type") == "application/json"
        return reply.status, json.loads(content) if is_json else content

    def turn(self, after: str = "", **query: Any) -> dict[str, Any]:
        """The turn that a person is asked, once it is not the one `after` which they replied."""

        def new() -> dict[str, Any]:
            found = self.ask("state.json", **query)[1]
            return found if found.get("key", after) != after else {}

        return wait_until(new)

    def reply(
        self, turn: dict[str, Any], answer: str | None = None, who: str = "", comment: str = "", **values: Any
    ) -> tuple[int, Any]:
        """Post a reply to a turn."""
        query = {"token": who} if who else {}
        body = {"key": turn["key"], "values": values, "answer": answer, "comment": comment}
        return self.ask("reply.json", body, **query)


@pytest.fixture
def play(few: RoomScans, tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Begins a run in this process, which has ended when all is answered; fails if it does not end."""
    runs: list[threading.Thread] = []

    def begin(**settings: Any) -> Session:
        port = free_port()
        config = few.config(
            tmp_path, model="Qwen/Qwen3-VL-8B-Instruct", policy="human", address=f"127.0.0.1:{port}", report=False
        )
        runs.append(threading.Thread(target=run_settings, args=(changed(config, **settings),)))
        runs[-1].start()
        wait_until(lambda: not socket.socket().connect_ex(("127.0.0.1", port)))
        return Session(port, tmp_path)

    yield begin
    for run in runs:
        run.join(60)
        assert not run.is_alive()


@contextmanager
def opened(browser: Any, address: str, **options: Any) -> Iterator[OpenPage]:
    shown = OpenPage(browser, address, allowed=("http://127.0.0.1:", "data:"), **options)
    yield shown
    ended = ("ERR_CONNECTION_REFUSED", "state.json", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")
    assert not [each for each in shown.problems if not any(word in each for word in ended)]
    shown.page.close()


def until_turn(shown: OpenPage, turn: int) -> None:
    left = {0: "8 moves left", 1: "7 moves left"}[turn]
    shown.until(f"document.getElementById('place').textContent === '{left}' && !document.hidden")
    # Those of a turn with a reply are gone.
    shown.until("[...document.querySelectorAll('#views img')].every((each) => each.complete && each.naturalWidth)")


OF_THE_PROGRAM = ("{", "JSON", "done", "_meters", "+x", "turn 0", "Image 1", "heading", "(- ", "undefined", "NaN")


def until_question(shown: OpenPage, question: str) -> None:
    shown.until(f"document.getElementById('question').textContent === {json.dumps(question)}")


def test_a_game_by_the_keyboard_alone_makes_an_ordinary_run_and_tells_no_truth(
    play: Callable[..., Session], few: RoomScans, browser: Any
):
    session, sent = play(), []
    with opened(browser, f"http://127.0.0.1:{session.port}/") as shown:
        shown.page.on("response", lambda reply: sent.append(reply))
        press = shown.page.keyboard.press
        until_turn(shown, 0)
        press("Enter")
        assert "Choose a move first" in shown.page.inner_text("#error")
        for key in ("ArrowLeft", "ArrowLeft", "ArrowUp", "ArrowUp", "ArrowDown", "Enter"):
            press(key)
        until_turn(shown, 1)
        shown.page.keyboard.type("7,5")  # the field of the answer takes it
        assert shown.page.input_value("[name=answer]") == "7,5", "which must not be read as 75"
        shown.page.locator("#exact summary").click()
        shown.page.locator("[name=forward_meters]").fill("half of")  # an answer is sent without reading the move
        shown.page.locator("[name=answer]").focus()
        for key in ("Backspace", "Backspace", "Enter"):
            press(key)
        shown.page.locator("#sure[open]").wait_for()
        assert "Your answer: 7" in shown.page.inner_text("#sure")
        press("Enter")
        until_question(shown, few.rows[1]["question"])
        assert "Question 2 of 3" in shown.page.inner_text("#game .about")
        assert "2 questions left" in shown.page.inner_text("#live")
        press("b")
        press("Enter")
        press("Enter")
        until_question(shown, "Is there a bed?")
        press("y")
        press("Enter")
        press("Enter")
        shown.until("document.querySelector('main').innerText.includes('Thank you')")
        texts = [reply.text() for reply in sent if "images/" not in reply.url]
    assert len(texts) > 5 and not any(
        word in text for text in texts for word in (TRUTH, "truth", "score", "scene_name")
    )
    reader = RunReader(only_run(session.log_root))
    assert [(row.answer, row.status, row.turns) for row in reader.rows] == [
        ("7", "answered", 2), ("B", "answered", 1), ("yes", "answered", 1),
    ]  # fmt: skip
    first = reader.turns(EpisodeId(1))[0]
    assert first.action.rotation_angle_degrees == 30 and first.action.forward_meters == 0.25
    assert all(0 < row.seconds < 60 for row in reader.rows)
    again = checked(**from_flags(*in_verbs(flags_giving(reader.facts.config))[1:]).settings)
    assert changed(again, log_root=session.log_root) == saved_settings(reader)
    assert "engine" not in reader.facts.protocol and "prompts=" in reader.facts.protocol
    assert "| human |" in run_main(["leaderboard", str(reader.folder)]).stdout
    assert reader.facts.prompts is not None and reader.facts.config["model"] == "human"
    assert [each["role"] for each in reader.messages(EpisodeId(1))] == ["system", *["user", "assistant"] * 2]


def test_a_phone_shows_all_of_it_and_a_click_turns_to_what_it_points_at(play: Callable[..., Session], browser: Any):
    session = play(num_questions=1, see="rgb depth")
    with opened(browser, f"http://127.0.0.1:{session.port}/", **PHONE) as shown:
        until_turn(shown, 0)
        shown.page.wait_for_function("[...document.querySelectorAll('#views img')].every((each) => each.naturalWidth)")
        said = words_of("en").say
        assert shown.page.locator("#views figure").all_inner_texts() == [said("views.rgb"), said("views.depth")]
        assert not shown.scrolling()
        box = shown.page.locator("#views img").first.bounding_box()
        shown.page.locator("#views img").first.click(position={"x": box["width"] - 2, "y": box["height"] / 2})
        field = shown.page.locator("[name=rotation_angle_degrees]")
        wait_until(field.input_value)
        assert 40 < float(field.input_value()) < 60  # the right edge of a view 94 degrees wide
        assert shown.page.locator("[data-side=rotation_angle_degrees]").input_value() == "-"
        shown.page.locator("#move .send").click()
        until_turn(shown, 1)
        assert shown.page.locator("#earlier img").count() == 2 and not shown.scrolling()
        shown.page.locator("#exact summary").click()
        shown.page.locator("[name=rotation_angle_degrees]").fill("-7,5")
        shown.page.locator("#move .send").click()
        shown.until("document.getElementById('place').textContent === '6 moves left'")
        assert shown.page.inner_text("#text") == "Turned 8 degrees to the right."
        shown.page.locator("[name=answer]").fill("2")
        shown.page.locator("#answer .send").click()
        shown.page.locator("#sure .send").click()
        shown.until("document.querySelector('main').innerText.includes('Thank you')")


NOTHING: tuple[dict[str, Any], ...] = (
    {}, {"values": 5}, {"values": None}, {"values": ["forward_meters"]}, {"values": {"forward": 1}}, {"answer": None},
)  # fmt: skip


def test_a_reply_without_a_move_or_an_answer_takes_no_turn(play: Callable[..., Session]):
    session = play(ids="1")
    turn = session.turn()
    for body in NOTHING:
        status, said = session.ask("reply.json", {"key": turn["key"]} | body)
        assert (status, "values are an object with some of rotation_angle_degrees" in said["error"]) == (422, True)
    assert session.turn()["key"] == turn["key"]
    assert session.reply(turn, "2")[0] == 200


def test_nobody_waits_while_a_practice_room_is_made_which_is_made_once(
    play: Callable[..., Session], capsys: pytest.CaptureFixture[str]
):
    session = play(annotator=["anna", "ben"], samples=2, num_questions=1)
    links = links_of(capsys)
    anna, ben = (session.turn(token=links[name]) for name in ("anna", "ben"))
    seconds, keys = list[float](), set[str]()

    def practise() -> None:
        began = time.perf_counter()
        keys.add(session.ask("state.json", token=links["anna"], practice="begin")[1]["key"])
        seconds.append(time.perf_counter() - began)

    making = threading.Thread(target=practise)
    making.start()
    time.sleep(0.1)
    assert session.reply(ben, who=links["ben"], forward_meters="far")[0] == 422
    assert session.reply(ben, "2", who=links["ben"])[0] == 200
    assert making.is_alive()
    making.join()
    practise()
    assert seconds[1] < seconds[0] / 2 and len(keys) == 2, "a second tab must see that it shows another question"
    assert session.reply(anna, "2", who=links["anna"])[0] == 200


def links_of(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The tokens of people's addresses, as printed."""
    printed = "".join(wait_until(lambda: capsys.readouterr().out))
    return dict(re.findall(r"(\w+): open http://\S+/\?token=(\S+)", printed))


def test_answers_are_dealt_to_people_who_reply_in_any_order(
    play: Callable[..., Session], capsys: pytest.CaptureFixture[str]
):
    session = play(annotator=["anna", "ben"], samples=2, num_questions=2)
    links = links_of(capsys)
    assert session.ask("state.json")[0] == session.ask("state.json", token="guessed")[0] == 403
    assert session.ask("state.json", annotator="anna")[0] == 403
    for person, answers in (("ben", ("4", "A")), ("anna", ("5", "A"))):  # ben goes on while anna is away
        key = ""
        for answer in answers:
            turn = session.turn(key, token=links[person])
            with ThreadPoolExecutor(5) as pool:
                posted = pool.map(lambda _: session.reply(turn, answer, links[person], "dark")[0], range(5))  # noqa: B023
                assert sorted(posted) == [200, 409, 409, 409, 409]
            key = turn["key"]
    wait_until(lambda: (only_run(session.log_root) / "summary.json").exists())
    reader = RunReader(only_run(session.log_root))
    assert sorted((row.id, row.answer) for row in reader.rows) == [("1", "4"), ("1", "5"), ("2", "A"), ("2", "A")]
    assert {(row.id, row.answer, row.person) for row in reader.rows if row.sample == 1} <= {
        ("1", "4", "ben"), ("1", "5", "anna"), ("2", "A", "ben"), ("2", "A", "anna"),
    }  # fmt: skip
    journal = reader.folder / "results.jsonl"
    columns = [cells["person"] for cells in csv.DictReader((reader.folder / "results.csv").open())]
    assert sorted(columns) == ["anna", "anna", "ben", "ben"] and '"person": "ben"' in journal.read_text()
    recorded = reader.rows
    older = [{key: value for key, value in row.to_json().items() if key != "person"} for row in recorded]
    journal.write_text("".join(json.dumps(row) + "\n" for row in older))  # as before rows named the person
    assert reader.rows == recorded
    summary = reader.summary.to_json()
    assert summary is not None and reader.facts.config["model"] == "human:anna+ben"
    assert summary["agreement"] == {
        "number": {"questions": 1, "percent": 60, "alpha": 0.0},
        "letter": {"questions": 1, "percent": 100},
    }
    assert {name: (each["answers"], each["failed"]) for name, each in summary["annotators"].items()} == {
        "anna": (2, 0), "ben": (2, 0),
    }  # fmt: skip
    run_main(["report", str(reader.folder)])
    report = (reader.folder / "report.html").read_text()
    assert "Agreement of answers, number: 60.0 %" in report and ">ben</th>" in report and "greedy" not in report
    assert "What the hardware did" not in report
    turn = (reader.folder / "report_files" / "data" / "q002.js").read_text()
    assert (
        '"action":"answers A"' in turn
        and '"comment":"dark"' in turn
        and "rotation_angle_degrees" not in turn.partition('"turns"')[2].partition('"read"')[0]
    )
    index = (reader.folder / "report_files" / "data" / "index.js").read_text()
    assert '"people":["anna","ben"]' in index


def test_what_cannot_be_read_takes_no_turn_and_the_last_turn_takes_an_answer(play: Callable[..., Session]):
    session = play(num_questions=1, steps=1)
    turn = session.turn()
    why = session.reply(turn, "many")[1]["error"]
    far = session.reply(turn, forward_meters="far")[1]["error"]
    assert why == "Please write a number, such as 2." and far == "Go: please write a number, such as 0.5."
    assert session.reply(turn, rotation_angle_degrees=720)[0] == 200
    last = session.turn(turn["key"])
    assert last["last"] and not last["fields"] and last["outcome"]["limited"] and last["outcome"]["turned_deg"] == 180
    assert session.reply(last)[0] == 422
    assert session.ask("aim.json", key=last["key"], x=1, y=1) == (200, {})
    assert session.ask("images/99", key=last["key"])[0] == session.ask("images/0", key=turn["key"])[0] == 404
    assert session.reply(last, "3") == (200, {"left": 0})
    wait_until(lambda: (only_run(session.log_root) / "summary.json").exists())
    reader = RunReader(only_run(session.log_root))
    assert reader.summary is not None and reader.summary.annotators["one person"].answers == 1
    first = reader.turns(EpisodeId(1))[0]
    assert first.clamped == ("rotation_angle_degrees 720 -> 180",)


@pytest.mark.parametrize(
    ("settings", "images"),
    [
        ({"moves": "spin"}, [1, 2, 3]),
        ({"moves": "spin", "present": "once"}, [3]),
        ({"keep_views": 1}, [1, 2, 2]),
        ({"actions": "discrete", "see": "rgb map"}, [2, 4, 6]),
    ],
)
def test_a_person_sees_the_images_that_a_model_sees(
    settings: dict[str, Any], images: list[int], play: Callable[..., Session]
):
    session, key = play(num_questions=1, steps=2, **settings), ""
    for number in images:
        shown = session.turn(key)
        key, seen = shown["key"], [image["number"] for message in shown["messages"] for image in message["images"]]
        assert len(seen) == number and bool(shown["fields"]) == ("moves" not in settings and not shown["last"])
        assert session.ask(f"images/{seen[-1]}", key=key)[1][:4] == b"\x89PNG"
        assert session.reply(shown, "3" if shown["last"] else None)[0] == 200


@pytest.fixture(scope="module")
def library(few: RoomScans) -> Iterator[ScanLibrary]:
    made = ScanLibrary(RaycastRenderer(), CameraSettings((160, 96), 75.0, 1.6, -15.0), few.root)
    yield made
    made.close()


def state_of(question: Question, library: ScanLibrary, **rules: Any) -> QuestionState:
    state = QuestionState(1, question, 8, rules=Rules(**rules))
    state.reset(library)
    return state


def test_a_turn_is_the_same_whatever_the_truth_is(few: RoomScans, library: ScanLibrary):
    question = load_questions(few.questions)[0]
    other = replace(question, ground_truth="1", dataset="elsewhere", id="another", scan=str(few.root / "x.ply"))
    state = state_of(question, library)
    shown = turn_shown(state)[0] | controls_of(state)
    state.question, state.conversation = other, Conversation(other.id)
    assert turn_shown(state)[0] | controls_of(state) == shown


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("translation", [True, False])
def test_each_space_has_controls_that_do_what_they_say(
    name: str, translation: bool, few: RoomScans, library: ScanLibrary
):
    state = state_of(load_questions(few.questions)[0], library, actions=name, translation=translation)
    controls = controls_of(state)
    keys = {each["key"]: each for each in controls["shortcuts"] if each["key"]}
    assert {"ArrowLeft", "ArrowRight"} <= set(keys) and ("ArrowUp" in keys) <= translation
    policy, seen = HumanPolicy((), "127.0.0.1", 0, 1), {each["name"]: each for each in controls["fields"]}
    for shortcut in controls["shortcuts"]:
        asked = Asked(state, {}, [])
        value = shortcut.get("add") or shortcut.get("set") or shortcut["append"]
        assert policy.reply(asked, {shortcut["field"]: value}, None) == ""
        (part,) = policy.check(asked, {shortcut["field"]: value}, None)["parts"]
        assert (part["way"], part["side"]) == (shortcut["way"], shortcut["side"])
        assert list(json.loads(asked.outcome.reply.text)) == [*state.rules.space.keys, "answer", "done"]  # type: ignore[union-attr]
    turned = aimed(state, controls, 159, 48)
    assert all("degrees" in field and field in seen for field in turned)
    assert bool(turned) == (keys["ArrowLeft"].get("add") is not None)


def question_in(scene: str, question_type: str = "room_size_estimation", id: str = "1") -> Question:
    return Question(id, "scannet", scene, question_type, "How large?", (), "3")


@pytest.mark.parametrize("people", ["abc", "abcdef", "abcdefghi"])
@pytest.mark.parametrize("samples", [1, 2])
def test_everybody_gets_as_many_answers_of_all_types_and_no_question_twice(people: str, samples: int):
    asked = [(f"room {room}", str(question_type)) for room in range(18) for question_type in range(9)]
    questions = [question_in(scene, question_type) for scene, question_type in asked]
    dealt = agreement.dealt(people, questions, VSI_BENCH, samples)
    for name in people:
        own = [each.number for each, person in dealt.items() if person == name]
        assert len(own) == len(set(own)) == len(asked) * samples / len(people)
        assert {asked[number - 1][1] for number in own} == set(map(str, range(9)))
    few = agreement.dealt(people, [question_in("one room")] * len(people), VSI_BENCH, samples)
    assert len(set(few.values())) == len(people)


@pytest.mark.parametrize("rooms", [2, 40])
@pytest.mark.parametrize("people", ["ab", "abc", "abcd", "abcdefg"])
@pytest.mark.parametrize("samples", [1, 2])
def test_nobody_gets_both_questions_of_a_pair(people: str, samples: int, rooms: int):
    benchmark = replace(VSI_BENCH, pairs=r"(\d+)[ab]", rescans={"scannet": "(.+)[ab]"})
    asked = [question_in(f"room{number}{member}", id=f"{number}{member}") for number in range(rooms) for member in "ab"]
    dealt = agreement.dealt(people, asked, benchmark, samples)
    for number in range(1, len(asked), 2):
        first, second = ({dealt[each, sample] for sample in range(1, samples + 1)} for each in (number, number + 1))
        assert len(first) == len(second) == samples
        assert len(people) < 2 * samples or not first & second
    assert max(Counter(dealt.values()).values()) - min(Counter(dealt.values()).values()) <= 2 * samples


@pytest.mark.slow
def test_a_question_goes_on_at_its_turn_after_the_server_was_killed(few: RoomScans, tmp_path: Path):
    port = free_port()
    session = Session(port, tmp_path)
    flags = ["--questions", str(few.questions), "--scan-root", str(few.root), "--log-root", str(tmp_path)]
    flags += f"--renderer raycast --image-size 160 96 --num-questions 1 --address 127.0.0.1:{port}".split()
    with served_by_the_command("play", *flags, "--no-report") as (process, said):
        assert f"Open http://127.0.0.1:{port}/ in a browser" in said
        turn = session.turn()
        session.reply(turn, rotation_angle_degrees=90)
        shown = session.turn(turn["key"])
        other = run_main(["resume", str(only_run(tmp_path))])
        assert other.returncode == 2 and "is being written by" in other.stderr
        again = run_main(["play", *flags])
        assert again.returncode == 2 and f":{port} (address already in use)" in again.stderr
        process.send_signal(signal.SIGKILL)
    with served_by_the_command("resume", str(only_run(tmp_path)), "--no-report") as (process, _):
        assert session.turn() == shown
        assert session.reply(shown, "3")[0] == 200
        assert process.stdout is not None
        printed = process.stdout.read()
        assert process.wait() == 0 and "mean of" in printed and "Final answer" not in printed
    assert [row.turns for row in RunReader(only_run(tmp_path)).rows] == [2]


def test_beyond_this_computer_the_page_needs_the_token_that_is_printed(capsys: pytest.CaptureFixture[str]):
    policy = HumanPolicy(("anna",), "0.0.0.0", 0, 1)
    with policy.open():
        printed = re.search(r"anna: open http://[\d.]+:(\d+)/\?token=(\S+)", capsys.readouterr().out)
        assert printed is not None
        session = Session(int(printed[1]), Path())
        assert session.ask("")[0] == session.ask("state.json")[0] == 403
        assert session.ask("state.json", token=printed[2]) == (200, {"left": None})


@pytest.fixture(scope="module")
def with_photo(few: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A question with a number, one with options and one that asks where a photo was taken, about one room."""
    folder = tmp_path_factory.mktemp("photo")
    Image.new("RGB", (64, 48), "orange").save(folder / "photo.png")
    number, choice, yes_no = [json.loads(line) for line in few.questions.read_text().splitlines()]
    pose = {"question": "Where was it?", "answer_kind": "pose", "ground_truth": "1, 1, 1.6, 90, -15"}
    pose |= {"images": [str(folder / "photo.png")], "question_type": "finding"}
    path = folder / "asked.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (number, choice, yes_no | pose)))
    return path


def overlaps(shown: OpenPage, selector: str) -> list[str]:
    """What lies over the middle of elements, once each is scrolled into view."""
    return shown.page.evaluate(
        """(selector) => [...document.querySelectorAll(selector)].filter((each) => {
            each.scrollIntoView({ block: "nearest" });
            const { left, top, width, height } = each.getBoundingClientRect();
            const above = document.elementFromPoint(left + width / 2, top + height / 2);
            return above !== each && !each.contains(above);
        }).map((each) => each.outerHTML.slice(0, 80))""",
        selector,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "size"),
    [
        ("de", PHONE | {"has_touch": True, "is_mobile": True}),
        ("en", {"viewport": {"width": 1280, "height": 800}}),
        ("en", {"viewport": {"width": 640, "height": 400}}),
    ],
)
def test_a_participant_of_any_eyes_and_fingers_gets_from_a_cut_link_to_the_end(
    language: str,
    size: dict[str, Any],
    play: Callable[..., Session],
    with_photo: Path,
    browser: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    (tmp_path / "welcome.md").write_text("I agree.<script>alert(1)</script>\n\n| key | move |\n|---|---|\n| a | b |")
    (tmp_path / "thanks.md").write_text("# Thanks\n\nCODE-7, {person}")
    texts = {"instructions": tmp_path / "welcome.md", "thanks": tmp_path / "thanks.md", "words": language}
    session = play(questions=with_photo, annotator=["anna"], **texts)
    say = words_of(language).say
    height = size["viewport"]["height"]
    page_of = f"http://127.0.0.1:{session.port}/?token="
    shown = OpenPage(browser, page_of, ("http://127.0.0.1:", "data:"), **size)

    def accessible(name: str) -> None:
        assert not [violation["id"] for violation in Axe().run(shown.page).response["violations"]], name
        assert not [word for word in OF_THE_PROGRAM if word in shown.page.inner_text("body")], name
        assert not shown.scrolling(), name

    def press(name: str) -> None:
        shown.page.get_by_role("button", name=name, exact=True).click()

    def answer_with(text: str) -> None:
        shown.page.locator("[name=answer]").fill(text)
        press(say("answer.send"))

    assert say("cut.ask") in shown.page.inner_text("main")
    accessible("cut link")
    shown.problems.clear()
    shown.page.goto(page_of + links_of(capsys)["anna"])
    shown.page.get_by_role("button", name=say("begin")).wait_for()
    assert "I agree.<script>" in shown.page.inner_text("#say") and shown.page.locator("#say table").count() == 1
    accessible("welcome")
    for begin in ("practise", "practice.again"):
        press(say(begin))
        shown.page.locator("#views img").wait_for()
        assert say("practice.note") in shown.page.inner_text("#game")
        accessible("practice")
        if begin == "practise":
            answer_with("2")
            shown.page.locator("#sure .send").click()
            shown.page.locator(".feedback").wait_for()
            assert say("practice.yours", answer="2") in shown.page.inner_text(".feedback")
        else:
            press(say("practice.skip"))
        assert say("practice.next", number="1") in shown.page.inner_text("#say")
        accessible("practice over")
    press(say("begin"))
    for answer in ("zwei" if language == "de" else "two", "B", ""):
        shown.page.locator(".view img").wait_for()
        shown.until("[...document.querySelectorAll('#views img')].every((each) => each.complete && each.naturalWidth)")
        shown.page.locator(".view img").click(position={"x": 9, "y": 9})
        shown.page.locator(".mark").wait_for()
        shown.until("document.getElementById('composed').textContent.match('(1 of|1 von) 8')")
        assert not overlaps(shown, ".view img, #move .send, #shortcuts button, #answer .send")
        accessible(f"question answered with {answer}")
        for control in [*shown.page.locator("#choices label").all(), shown.page.locator("#answer .send")]:
            box = control.bounding_box()
            assert box["height"] >= 44 and (height < 800 or 0 <= box["y"] <= height - box["height"])
        if answer == "B":
            shown.page.locator("[value=B]").check()
        elif answer:
            answer_with("viele")
            shown.page.get_by_text(say("errors.count")).wait_for()
            assert not shown.page.locator("#sure[open]").count()
            press(say("pause"))
            accessible("paused")
            press(say("continue"))
            shown.page.locator("[name=answer]").fill(answer)
        else:
            boxes = [each.bounding_box() for each in shown.page.locator("#views img").all()]
            assert max(box["y"] + box["height"] for box in boxes) - min(box["y"] for box in boxes) < height
        shown.page.locator("#answer .send").click()
        shown.page.locator("#sure[open]").wait_for()
        accessible("dialog")
        shown.page.locator("#comment").fill(f"About {answer}")
        press(say("answer.confirm"))
        shown.page.locator("#sure").wait_for(state="hidden")
        if answer:
            until_question(shown, json.loads(with_photo.read_text().splitlines()[1 + (answer == "B")])["question"])
    shown.page.get_by_text("CODE-7, anna").wait_for()
    assert say("end.close") in shown.page.inner_text("main")
    accessible("end")
    assert not shown.problems
    shown.page.close()
    reader = RunReader(wait_until(lambda: only_run(session.log_root)))
    replies = [json.loads(reader.turns(EpisodeId(number))[-1].reply.text) for number in (1, 2, 3)]
    assert [reply["answer"] for reply in replies] == ["2", "B", "here"]
    assert replies[1]["comment"] == "About B" and reader.facts.answerer["instructions_sha256"]


def test_a_dialog_sends_no_answer_to_another_question_and_what_is_left_is_said_once(
    play: Callable[..., Session], browser: Any, tmp_path: Path
):
    words = tmp_path / "own.yaml"
    words.write_text(json.dumps(words_of("en").words | {"language": "ar", "title": "أسئلة"}))
    session = play(ids=["1", "3"], words=str(words))
    with opened(browser, f"http://127.0.0.1:{session.port}/") as shown:
        until_turn(shown, 0)
        assert shown.page.evaluate("getComputedStyle(document.body).direction") == "rtl"
        left, right = (
            shown.page.locator(f"[data-way=left_meters-{side}]").bounding_box() for side in ("plus", "minus")
        )
        assert left["x"] < right["x"], "which is no matter of the direction of writing"
        shown.page.locator("[name=answer]").fill("2")
        shown.page.locator("#answer .send").click()
        shown.page.locator("#sure[open]").wait_for()
        assert session.reply(session.turn(), "5")[0] == 200  # in another tab
        until_question(shown, "Is there a bed?")
        assert not shown.page.locator("#sure[open]").count()
        shown.page.evaluate(
            "window.said = new MutationObserver(() => { window.again = true; });"
            "window.said.observe(document.getElementById('live'), { childList: true })"
        )
        asked = []
        shown.page.on("requestfinished", lambda request: asked.append(request.url))
        wait_until(lambda: shown.page.evaluate("1") and sum("state.json" in url for url in asked) > 1)
        assert not shown.page.evaluate("Boolean(window.again)")
        shown.page.locator("[value=no]").check()
        shown.page.locator("#answer .send").click()
        shown.page.locator("#sure .send").click()
        shown.until("document.querySelector('main').innerText.includes('Thank you')")
    assert [row.answer for row in RunReader(only_run(session.log_root)).rows] == ["5", "no"]
