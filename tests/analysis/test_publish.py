"""The published folder: what it shows, what it leaves out, and what a browser makes of it."""

import base64
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from roomscout.analysis.publish import main
from roomscout.analysis.report.sharing import Sharing
from roomscout.runs.reader import RunReader

SECRETS = (
    "zoe_planted",
    "planted-host-17",
    "sk-planted0123456789",
    "plantedkeyvalue",
    "planted.internal",
    "secretpassword",
)
HOME = "/home/zoe_planted/rooms"


@pytest.fixture
def planted(one_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose records name a user, hosts and keys wherever a real one may."""
    folder = Path(shutil.copytree(one_run, tmp_path / "planted"))
    facts = json.loads((folder / "run.json").read_text())
    facts |= {"host": "planted-host-17", "resumed": [{"host": "planted-host-17", "at": "2026-01-01T00:00:00"}]}
    facts["config"] |= {"questions": f"{HOME}/q.jsonl", "base_url": ["http://zoe_planted@planted.internal:8000/v1"]}
    facts["config"] |= {"scan_root": HOME, "engine": "openai", "prices": f"{HOME}/prices.yaml"}
    (folder / "run.json").write_text(json.dumps(facts))
    monkeypatch.setenv("OPENAI_API_KEY", "plantedkeyvalue")
    (journal, *_) = sorted(folder.glob("q*/turns.jsonl"))
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    lines[0]["reply"]["text"] = (
        f"I read {HOME}/a b.ply and file://{HOME}/c.ply on planted-host-17 with sk-planted0123456789, plantedkeyvalue, "
        "at http://zoe:secretpassword@planted.internal/v1"
    )
    lines[0]["parse_error"] = f"cannot read {HOME}/d.ply"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def contents_of(folder: Path) -> list[bytes]:
    """The bytes of all files and their names, and those of all that is packed in them, as base64 and by zlib."""
    found = [str(path.relative_to(folder)).encode() for path in folder.rglob("*")]
    for path in folder.rglob("*"):
        if path.is_file():
            found.append(path.read_bytes())
    for content in list(found):
        for packed in re.findall(rb"[A-Za-z0-9+/]{40,}={0,2}", content):
            whole = packed[: len(packed) // 4 * 4]
            raw = base64.b64decode(whole)
            found.append(raw)
            try:
                found.append(zlib.decompress(base64.b64decode(packed + b"=" * (-len(packed) % 4)), 15 + 32))
            except (zlib.error, ValueError):
                continue
    return found


def test_nothing_of_the_machine_leaves(planted: Path, tmp_path: Path):
    out = tmp_path / "site"
    assert main([str(planted), "--output", str(out)]) == 0
    contents = contents_of(out)
    assert len(list((out / "replays").iterdir())) in (1, 2)
    assert sum(len(content) for content in contents) > 300_000, "views and scans are in the pages"
    for secret in (*SECRETS, str(tmp_path)):
        assert not [content for content in contents if secret.encode() in content], secret


def test_the_search_finds_what_is_packed(tmp_path: Path):
    packed = base64.b64encode(zlib.compress(b"a scan of zoe_planted" * 9)).decode()
    (tmp_path / "page.html").write_text(f'"{packed}"')
    assert any(b"zoe_planted" in content for content in contents_of(tmp_path))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"see {HOME}/a.ply", "see ~/rooms/a.ply"),
        ("see /tmp/x/y.log, then", "see y.log, then"),
        ("../runs/a.html and a/b/c and </td>", "../runs/a.html and a/b/c and </td>"),
        ("https://arxiv.org/tmp/abs", "https://arxiv.org/tmp/abs"),
        ("Bearer abcdefghijklmn", "[key]"),
        ("at http://me:pw@x.org/", "at http://[key]@x.org/"),
        ("hf_" + "aB3" * 10, "[key]"),
        ("has_hf_points and task-force", "has_hf_points and task-force"),
    ],
)
def test_texts_are_scrubbed(one_run: Path, text: str, shown: str):
    assert Sharing([RunReader(one_run)]).text(text) == shown


def test_an_index_links_relatively_to_reports_replays_and_studies(one_run: Path, tmp_path: Path, capsys):
    study = tmp_path / "budget"
    study.mkdir()
    (study / "study.html").write_text(f'<a href="../x/report.html">one</a> <a href="{one_run}/report.html">two</a>')
    out = tmp_path / "site"
    assert main([str(one_run), "--output", str(out), "--replay", "q001", "--study", str(study)]) == 0
    index = (out / "index.html").read_text()
    links = re.findall(r'href="([^"]+)"', index)
    assert f"runs/{one_run.name}.html" in links
    assert f"replays/{one_run.name}_q001.html" in links
    assert "studies/budget.html" in links
    assert all((out / link).is_file() for link in links if not link.startswith("data:"))
    shown = (out / "studies/budget.html").read_text()
    assert shown == f'one <a href="../runs/{one_run.name}.html">two</a>'
    assert (out / ".nojekyll").is_file()
    assert not re.search(r'(?:src|href)="(?:/|https?:)', index)


def test_runs_and_studies_of_one_name_have_pages_of_their_own(one_run: Path, tmp_path: Path):
    runs = [shutil.copytree(one_run, tmp_path / folder) for folder in ("a/run", "b/run", "c/run-2")]
    studies = [tmp_path / folder / "budget" for folder in "ab"]
    for study in studies:
        study.mkdir(parents=True)
        (study / "study.html").write_text(f"of {study.parent.name}")
    out = tmp_path / "site"
    assert main([*map(str, runs), "--output", str(out), "--replay", "--study", *map(str, studies)]) == 0
    assert {path.name for path in (out / "runs").glob("*.html")} == {"run.html", "run-2.html", "run-2-2.html"}
    assert [(out / f"studies/{name}.html").read_text() for name in ("budget", "budget-2")] == ["of a", "of b"]


@pytest.mark.parametrize(
    ("url", "stays"),
    [
        ("https://api.known.com/v1", True),
        ("http://gpu7.university.edu:8000/v1", False),
        ("https://gpu7.university.edu:8443/v1", False),
        ("http://[fd00::17]:8000/v1", False),
        ("https://192.168.3.4/v1", False),
    ],
)
def test_hosts_of_servers_that_are_no_public_service_are_taken_out(
    one_run: Path, tmp_path: Path, url: str, stays: bool
):
    folder = Path(shutil.copytree(one_run, tmp_path / "run"))
    facts = json.loads((folder / "run.json").read_text())
    facts["config"] |= {"engine": "openai", "base_url": [url]}
    (folder / "run.json").write_text(json.dumps(facts))
    host = urlsplit(url).hostname
    assert (host in Sharing([RunReader(folder)]).text(f"asked {url}: {host} is busy")) == stays


def test_a_folder_is_replaced_only_if_publish_wrote_it_and_with_force(one_run: Path, tmp_path: Path, capsys):
    out = tmp_path / "site"
    out.mkdir()
    (out / "thesis.tex").touch()
    arguments = [str(one_run), "--output", str(out), "--replay"]
    assert main([*arguments, "--force"]) == 2
    assert "exists: choose another, as it is not one that publish wrote" in capsys.readouterr().err
    (out / "thesis.tex").unlink()
    assert main(arguments) == 0
    assert not (out / "replays").exists()
    assert main(arguments) == 2
    assert "replace it with --force" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--replay", "q999"], "--replay q999: no run has an answer of this name that can be shown"),
        (["--study", "/nowhere"], "--study /nowhere has no page (No such file or directory)"),
    ],
)
def test_wrong_names_are_refused_and_leave_nothing(one_run: Path, tmp_path: Path, capsys, more, complaint):
    assert main([str(one_run), "--output", str(tmp_path / "site"), *more]) == 2
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_views_of_scans_on_request_stay_unless_asked_for(one_run: Path, tmp_path: Path):
    folder = Path(shutil.copytree(one_run, tmp_path / "scannet_run"))
    rows = (folder / "results.jsonl").read_text()
    (folder / "results.jsonl").write_text(rows.replace("room_seed7_", "scene0000_"))
    assert main([str(folder), "--output", str(tmp_path / "site")]) == 0
    page = (tmp_path / "site/runs/scannet_run.html").read_text()
    assert "data:image" not in page
    assert not list((tmp_path / "site").rglob("*.jpg")) + list((tmp_path / "site").rglob("*.png"))
    assert not (tmp_path / "site/replays").exists()
    assert "ScanNet Terms of Use, access on request" in (tmp_path / "site/index.html").read_text()
    assert main([str(folder), "--output", str(tmp_path / "open"), "--replay", "--restricted-views"]) == 0
    assert list((tmp_path / "open/runs/scannet_run_files/views").rglob("*.jpg"))


def test_a_browser_shows_the_folder_from_disk(browser: Any, one_run: Path, tmp_path: Path):
    assert main([str(one_run), "--output", str(tmp_path / "site")]) == 0
    page = browser.new_page(viewport={"width": 390, "height": 800})
    requested, errors = [], []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto((tmp_path / "site/index.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "no sideways scrolling on a phone"
    page.click("table a")
    page.wait_for_selector("#table .tabulator-row")
    page.go_back()
    page.click("text=in 3D")
    page.wait_for_selector("canvas")
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requested)
    assert not errors
    page.close()
