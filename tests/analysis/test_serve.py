"""The report of a run in progress, from a real server on this computer, in headless Chromium."""

import http.client
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from browsing import OpenPage
from conftest import RoomScans, run_in_process, served_by_the_command
from waiting import PATIENCE_S

from roomscout.analysis.serve.live import LiveRun
from roomscout.analysis.serve.runs import site_of
from roomscout.base.web import server_on
from roomscout.command.main import main
from roomscout.runs.reader import RunReader


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """Serves a folder; returns its address."""
    with ExitStack() as stack:

        def start(folder: Path) -> str:
            drafts = tmp_path / "drafts"
            drafts.mkdir(exist_ok=True)
            server = stack.enter_context(server_on(0, site_of(folder, drafts)))
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/"

        yield start


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens an address; afterwards nothing may have gone wrong in any page."""
    pages: list[OpenPage] = []

    def open_page(address: str, **options: Any) -> OpenPage:
        pages.append(OpenPage(browser, address, allowed=("http://127.0.0.1:", "data:"), **options))
        pages[-1].page.evaluate("window.notReloaded = true")
        return pages[-1]

    yield open_page
    stall = "GPU stall due to ReadPixels"  # what Chromium without a GPU says of WebGL
    problems = [problem for each in pages for problem in each.problems if stall not in problem]
    reloaded = [each.page.url for each in pages if each.page.evaluate("window.notReloaded") is not True]
    for each in pages:
        each.page.close()
    assert not problems and not reloaded


class Unfinished:
    """A copy of a run without its last results, which it writes on demand."""

    def __init__(self, run: Path, folder: Path, rest: int):
        self.folder = shutil.copytree(run, folder)
        self._results = folder / "results.jsonl"
        lines = self._results.read_text().splitlines(keepends=True)
        self._results.write_text("".join(lines[:-rest]))
        self._left = lines[-rest:]
        for name in ("summary.json", "results.json", "results.csv"):
            (folder / name).unlink()

    @property
    def next(self) -> str:
        """The name of the answer that is finished next."""
        return json.loads(self._left[0])["folder"]

    def finish(self) -> str:
        """Append the next result, as the writer does; returns the name of its answer."""
        name = self.next
        with self._results.open("a") as results:
            results.write(self._left.pop(0))
        return name


@pytest.fixture
def unfinished(one_run: Path, tmp_path: Path) -> Unfinished:
    """A run with three answers left."""
    return Unfinished(one_run, tmp_path / "run", 3)


def outcome(shown: OpenPage, name: str) -> str:
    """What the table says of an answer."""
    row = shown.page.locator("#table .tabulator-row", has=shown.page.locator(f"a[href='#{name}']"))
    return row.locator("[tabulator-field=outcome]").inner_text()


def until_said(shown: OpenPage, words: str) -> None:
    """Wait until the line at the top of a page has these words."""
    shown.until(f"document.getElementById('live').textContent.includes({json.dumps(words)})")


@pytest.mark.slow
def test_a_new_result_appears_without_reloading(unfinished: Unfinished, serve: Any, opened: Any):
    shown = opened(serve(unfinished.folder))
    until_said(shown, "In progress: 18 of 21 answers.")
    assert outcome(shown, unfinished.next) == "… unfinished"
    os.utime(unfinished.folder / "results.jsonl")
    with shown.page.expect_response(lambda reply: "state.json" in reply.url and '"rows":[]' in reply.text()):
        pass  # a change without a changed answer
    name = unfinished.finish()
    until_said(shown, "In progress: 19 of 21 answers.")
    row = next(row for row in RunReader(unfinished.folder).rows if row.folder == name)
    assert outcome(shown, name).split()[-1] == {0: "wrong", 1: "right"}.get(row.score, "partly")
    assert "over 19 scored answers" in shown.page.inner_text("#scores")
    assert "2 of 21 pending" in shown.page.inner_text("header")


@pytest.mark.slow
def test_filter_sorting_and_scrolling_stay(unfinished: Unfinished, serve: Any, opened: Any):
    shown = opened(serve(unfinished.folder), viewport={"width": 1200, "height": 500})
    shown.page.fill("input[name=to]", "8")
    for _ in range(2):
        shown.page.click(".tabulator-col[tabulator-field=turns]")
    shown.page.evaluate("document.querySelector('.tabulator-tableholder').scrollTop = 90; scrollTo(0, 400)")
    before = shown.names(), shown.page.evaluate("[scrollY, document.querySelector('.tabulator-tableholder').scrollTop]")
    assert before[1] == [400, 90]
    unfinished.finish()
    until_said(shown, "19 of 21")
    after = shown.names(), shown.page.evaluate("[scrollY, document.querySelector('.tabulator-tableholder').scrollTop]")
    assert after == before


def test_an_open_question_gets_its_next_turn(one_run: Path, tmp_path: Path, serve: Any, opened: Any):
    row = max(RunReader(one_run).rows, key=lambda row: row.turns)
    run = shutil.copytree(one_run, tmp_path / "run")
    results, journal = run / "results.jsonl", run / row.folder / "turns.jsonl"
    results.write_text("".join(line for line in results.open() if json.loads(line)["folder"] != row.folder))
    turns = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(turns[:-1]))
    shown = opened(serve(run) + f"#{row.folder}")
    assert shown.heading() == row.folder and shown.page.locator(".turn").count() == len(turns) - 1
    shown.page.evaluate("document.querySelector('.turn').dataset.same = 'yes'")
    with journal.open("a") as appended:
        appended.write(turns[-1])
    shown.until(f"document.querySelectorAll('.turn').length === {len(turns)}")
    assert shown.page.get_attribute(".turn", "data-same") == "yes"


@pytest.mark.slow
def test_the_page_says_when_the_server_has_ended(one_run: Path, browser: Any):
    with served_by_the_command("serve", str(one_run), "--port", "0") as (process, said):
        shown = OpenPage(browser, said.partition(" at ")[2].split()[0])
        until_said(shown, "Finished")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE_S)
        until_said(shown, "The server has ended")
        shown.page.close()


def test_a_run_on_ray_shows_what_its_parts_have(six_rooms: RoomScans, one_run: Path, tmp_path: Path, serve: Any):
    """A run whose parts are in progress has no result of its own yet."""
    run = tmp_path / "run"
    run.mkdir()
    for name in ("run.json", "questions.jsonl"):
        shutil.copy(one_run / name, run)
    part = run_in_process(six_rooms.config(run / "parts", shard="1/2"))
    answered = [row.folder for row in RunReader(part).rows]
    live = LiveRun(run, tmp_path / "maps")
    finished = [row[0] for row in live.index()["rows"] if row[4] < 3]
    assert finished == answered and len(answered) < 21
    view = f"views/{answered[0]}/render_00.png"
    assert live.page(view.split("/"), {}).content == (part / answered[0] / "render_00.png").read_bytes()
    assert f'"view":"{view}"' in live.page(["data", f"{answered[0]}.js"], {}).content.decode()


@pytest.mark.slow
def test_a_folder_of_runs_is_a_list_that_opens_each_report(one_run: Path, tmp_path: Path, serve: Any, opened: Any):
    root = tmp_path / "logs"
    done, going = shutil.copytree(one_run, root / "done"), Unfinished(one_run, root / "going & <b>on", 2)
    (root / "broken").mkdir()
    (root / "broken" / "run.json").write_text("{")
    address = serve(root)
    shown = opened(address)
    shown.until("document.querySelectorAll('tbody tr').length === 3")
    summary = RunReader(done).summary
    rows, names = shown.page.locator("tbody tr").all_inner_texts(), ("done", "going & <b>on", "broken")
    texts = {name: next(row for row in rows if name in row) for name in names}
    assert summary is not None and f"{summary.asked.overall:.1f}" in texts["done"]
    assert "19 of 21" in texts["going & <b>on"]
    started = RunReader(done).facts.started[:10]
    assert texts["done"].count(started) == 1 and "Most frequent answer" in texts["done"]
    assert "21 questions" in texts["done"] and RunReader(done).facts.questions_sha256[:8] not in texts["done"]
    assert "run.json is damaged" in texts["broken"]
    going.finish()
    shown.until("document.querySelector('tbody').textContent.includes('20 of 21')")
    report = opened(address + "runs/going%20%26%20%3Cb%3Eon/")
    until_said(report, "20 of 21")
    assert report.page.get_attribute("nav a", "href") == "../../"
    report.until("document.getElementById('count').value.startsWith('21 of 21 answers')")


def test_a_question_opens_in_3d(one_run: Path, serve: Any, opened: Any):
    shown = opened(serve(one_run) + "#q001")
    shown.until("document.querySelector('#question dl') !== null")
    address = shown.page.get_attribute("#question dl a", "href")
    assert address == "replays/q001.html"
    shown.page.goto(shown.page.url.partition("#")[0] + address)
    question = RunReader(one_run).rows[0].question
    shown.until(f"document.body.textContent.includes({json.dumps(question)})")
    shown.page.evaluate("window.notReloaded = true")


def test_serving_changes_nothing_in_the_run(unfinished: Unfinished, serve: Any, opened: Any):
    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in unfinished.folder.rglob("*") if path.is_file()}

    before = contents()
    shown = opened(serve(unfinished.folder) + "#q001")
    shown.until("document.querySelector('.map image') !== null")
    shown.until("document.querySelector('.turn img').naturalWidth === 160")
    assert contents() == before


def asked(address: str, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str]:
    """The status and the text that a server sends for a path, which is sent as it is."""
    place = address.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(place, timeout=PATIENCE_S)
    connection.request(method, path, headers={"Host": host or place})
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


@pytest.mark.parametrize(
    "path",
    [
        "/run.json",
        "/../run.json",
        "/views/q001/../run.json",
        "/views/q001/..%2frun.json",
        "/views/..%2f..%2f/render_00.png",
        "/views/q001/turns.jsonl",
        "/views/q001/render_%00.png",
        "/views/q999/render_00.png",
        "/maps/..%2frun.png",
        "/assets/..%2f..%2f__init__.py",
        "/data/q1.js",
        "/runs/run/",
        "/replays/..%2frun.html",
        "/replays/q999.html",
        "//etc/passwd",
        "http://elsewhere/",
        "/%ff%fe",
    ],
)
def test_no_address_leads_out_of_the_report(one_run: Path, serve: Any, path: str):
    assert asked(serve(one_run), path) == (404, "There is no such page.")


def test_a_view_that_is_a_link_out_of_its_folder_is_not_shown(unfinished: Unfinished, tmp_path: Path, serve: Any):
    view = unfinished.folder / "q001" / "render_00.png"
    view.rename(tmp_path / "secret.png")
    view.symlink_to(tmp_path / "secret.png")
    assert asked(serve(unfinished.folder), "/views/q001/render_00.png")[0] == 404


@pytest.mark.parametrize(("host", "status"), [("localhost:9000", 200), ("127.0.0.1", 200), ("evil.example", 403)])
def test_only_names_of_this_computer_are_answered(one_run: Path, serve: Any, host: str, status: int):
    """A page whose name leads to 127.0.0.1 by DNS could read the run otherwise."""
    assert asked(serve(one_run), "/state.json", host)[0] == status


def test_markup_in_texts_of_a_run_stays_text_in_what_is_replaced(unfinished: Unfinished, tmp_path: Path):
    results = unfinished.folder / "results.jsonl"
    rows = [json.loads(line) | {"question_type": "<script>x</script>"} for line in results.open()]
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    blocks = LiveRun(unfinished.folder, tmp_path / "maps").changes("")["blocks"]
    assert "&lt;script&gt;" in blocks["plots"]
    assert not re.search("<script", "".join(blocks.values()))


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_is_not_a_run_is_refused_in_one_sentence(tmp_path: Path, there: bool, capsys: Any):
    folder = tmp_path / "folder"
    if there:
        folder.mkdir()
    assert main(["serve", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{folder} is not a run folder" in said if there else "does not exist" in said
