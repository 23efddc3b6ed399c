"""Settings from flags, YAML files, saved runs and Python; which conflict, and which a resumed run keeps."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, RoomScans, run_command, run_main
from planned import changed, checked, from_flags, settings_of
from pydantic import TypeAdapter

from roomscout.base.errors import ConfigError, flag
from roomscout.command.main import main
from roomscout.data.answers import Number
from roomscout.data.benchmarks import benchmark_names
from roomscout.data.questions import Question, Selection
from roomscout.edge.basis import basis_of
from roomscout.edge.declaring import Role
from roomscout.edge.flags import Given
from roomscout.edge.request import Request
from roomscout.edge.resolve import resolve
from roomscout.edge.settings import SECTIONS, SETTINGS, Settings, flags_giving, names_in, names_of


def given(*arguments: str) -> Given:
    """A parsed command line."""
    return from_flags(*arguments)


def resolved(*arguments: str) -> Settings:
    """The settings of a command line."""
    parsed = given(*arguments)
    return resolve(parsed.settings, source=parsed.sources)


def test_flags_win_over_the_yaml_file_and_the_file_over_the_defaults(tmp_path: Path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "steps: 5\nbatch-size: 3\nscenes: [0042, 4_2]\nids: [yes, no, 2024-01-01]\nfocal: 2.5e2\nbatch: yes\n"
        "question: null\n"
    )
    read = resolved("--config", str(path), "--steps", "2")
    assert changed(read, scan_root="scans", log_root="experiment_logs") == settings_of(
        steps=2, batch_size=3, scenes=("0042", "4_2"), ids=("yes", "no", "2024-01-01"), focal=250.0
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stepz: 5", "there is no setting --stepz; did you mean --steps"),
        ("steps: -1", "--steps: Input should be greater than or equal to 0, got -1"),
        ("batch: maybe", "--batch takes yes or no, got maybe"),
        ("- steps", "mapping"),
        ("steps: [", "YAML"),
        ("seed: !!int many", "could not determine a constructor for the tag"),
    ],
)
def test_a_bad_yaml_file_is_named_with_its_key(tmp_path: Path, text: str, words: str):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        resolved(f"--config={path}")
    assert "bad.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"batch_size": 0}, "--batch-size: .*greater than or equal to 1.*, got 0"),
        ({"focal": float("nan")}, "--focal: .*finite"),
        ({"camera_pitch": 90.0}, "--camera-pitch: .*less than 90, got 90"),
        ({"device": "cuda:0,1"}, "--device: .*got cuda:0,1"),
        ({"tell": "nothing pose"}, "--tell takes some of"),
        ({"given": "boxes boxes-seen"}, "--given takes boxes or boxes-seen"),
        ({"generation": "top_p=0"}, "--generation top_p: .*greater than 0, got 0"),
        ({"generation": "repetition_penalty=inf"}, "--generation repetition_penalty: .*finite"),
        ({"generation": "checkpoint top_p=1"}, "--generation takes checkpoint, or each of .* once as NAME=VALUE"),
        ({"gpus": "0,0"}, "--gpus takes each name once, got 0 twice"),
        ({"address": "here"}, "--address takes HOST:PORT"),
    ],
)
def test_a_value_that_a_setting_does_not_take_is_refused_by_its_name(values: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        settings_of(**values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"engine": "openai"}, "--engine openai needs --base-url"),
        ({"engine": "openai", "base_url": "http://x", "generation": "checkpoint"}, "a server applies its own defaults"),
        ({"policy": "random", "generation": "top_p=1"}, "--generation top_p=1.0 conflicts with --policy random"),
        ({"engine": "vllm", "compile": True}, "--compile needs --engine transformers"),
        ({"tensor_parallel_size": 2}, "--tensor-parallel-size 2 needs --engine vllm"),
        ({"present": "once"}, "--present once needs --moves or --moves-of or --given path"),
        ({"present": "video"}, "--present video needs --videos"),
        ({"present": "video", "videos": "x", "see": "depth"}, "--see rgb depth conflicts with --present video"),
        ({"frames": 3}, "--frames 3 needs --present video"),
        ({"keep_views": 1, "steps": 0}, "--keep-views 1 conflicts with --steps 0"),
        ({"anytime": True, "moves": "none"}, "--anytime conflicts with --moves none"),
        ({"moves": "spin", "given": "path"}, "--given path conflicts with --moves spin"),
        ({"min_turns": 9}, "--min-turns is after the last turn"),
        ({"max_batch_size": 3, "batch_size": 2}, "--max-batch-size 3 conflicts with --batch-size 2"),
        ({"policy": "human", "temperature": 0.5}, "--policy human conflicts with --temperature 0.5"),
        ({"annotator": "anna"}, "--annotator anna needs --policy human"),
        ({"budget": 1.0}, "--budget 1 needs --prices"),
        ({"prices": "p.yaml", "policy": "random"}, "--prices p.yaml conflicts with --policy random"),
        ({"gpus": "0,1", "device": "cuda:1"}, "--gpus 0 1 conflicts with --device cuda:1"),
        ({"gpus": "0,1", "ray": True}, "--gpus 0 1 conflicts with --ray"),
    ],
)
def test_settings_that_conflict_are_named_with_their_values(values: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=re.escape(words)):
        checked(**values)


def test_a_file_and_flags_are_checked_only_in_combination(tmp_path: Path):
    path = tmp_path / "run.yaml"
    path.write_text("batch: true\ntensor_parallel_size: 2\n")
    resolved("--config", str(path), "--engine", "vllm")
    with pytest.raises(ConfigError, match="--tensor-parallel-size"):
        resolved("--config", str(path))


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--image-size", "argument --image-size: expected at least one argument"),
        ("--steps=", "argument --steps: takes a value, got an empty text"),
        ("--samples 1 2", "unrecognized arguments: 2"),
        ("--stepz 3", "there is no flag --stepz; did you mean --steps?"),
        ("-x 3", "there is no flag -x; --help lists the flags"),
        ("--steps 3 -steps 4", "there is no flag -steps; did you mean --steps?"),
    ],
)
def test_a_wrong_flag_is_refused_in_one_sentence(typed: str, words: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        given(*typed.split())
    assert f"error: {words}" in capsys.readouterr().err


@pytest.mark.parametrize("value", [[], ["nonsense"], ["1", "2", "3"], [""], ["-7"]], ids=str)
def test_whatever_a_flag_is_given_it_takes_it_or_names_itself(value: list[str], capsys: pytest.CaptureFixture[str]):
    for name in SETTINGS:
        try:
            parsed = given(flag(name), *value).settings
            assert settings_of(**parsed) and parsed.keys() == {name}
        except ConfigError as refused:
            assert str(refused).startswith(flag(name)) and "\n" not in str(refused)  # noqa: PT017 (may be accepted)
        except SystemExit:
            said = capsys.readouterr().err
            assert re.search(f"argument {flag(name)}|unrecognized arguments|there is no flag -7", said)


def test_settings_survive_saving_and_their_flags_give_them_again():
    settings = settings_of(
        questions="q.csv", num_questions=3, scenes=("007",), max_batched_turns="all", translation=False,
        extra_body={"top_p": 0.9}, engine="openai", base_url="http://x/v1", tell="nothing", image_size=(64, 32),
        generation={"top_k": 20, "min_p": 0.1},
    )  # fmt: skip
    assert settings_of(**settings.as_json) == settings
    assert settings_of(**given(*flags_giving(settings.as_json)).settings) == settings


class TestResuming:
    def test_speed_may_change_but_not_answers(self):
        saved = settings_of(seed=3)
        assert resolve({"batch_size": 2}, saved).batch_size == 2
        with pytest.raises(ConfigError, match=r"--temperature, --steps would change answers"):
            resolve({"steps": 3, "temperature": 0.5}, saved)
        with pytest.raises(ConfigError, match="--logprobs would change the records"):
            resolve({"logprobs": True}, saved)

    def test_auto_keeps_the_value_of_the_run(self):
        saved = settings_of(renderer="raycast", dtype="float32")
        resumed = resolve({"renderer": "auto", "dtype": "auto"}, saved)
        assert (resumed.renderer, resumed.dtype) == ("raycast", "float32")

    def test_filters_and_paths_may_be_written_otherwise(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(tmp_path)
        saved = settings_of(ids=("a", "b"), prompts=tmp_path / "a.yaml")
        assert resolve({"ids": ("b", "a"), "prompts": "a.yaml"}, saved)


class TestHelp:
    def test_and_the_api_load_neither_torch_nor_a_renderer(self):
        code = (
            "import runpy, sys; from roomscout import ask; sys.argv = ['x', '--help']\n"
            f"try: runpy.run_path({str(COMMAND)!r}, run_name='__main__')\n"
            "except SystemExit as end: assert end.code == 0\n"
            "heavy = {'numpy', 'torch', 'transformers', 'open3d', 'trimesh', 'pyrender'} & set(sys.modules)\n"
            "assert not heavy, heavy"
        )
        shown = run_command([sys.executable, "-c", code], cwd=COMMAND.parent)
        assert shown.returncode == 0 and "--max-batched-turns" in shown.stdout, shown.stderr

    def test_lists_every_setting_once_and_the_choices_of_registries(self, monkeypatch: pytest.MonkeyPatch):
        assert len(SETTINGS) <= 75
        assert sorted(name for section in SECTIONS for name in names_in(section)) == sorted(SETTINGS)
        monkeypatch.setenv("COLUMNS", "900")
        shown = run_main(["--help"]).stdout
        assert all(f"\n  {flag(name)}" in shown for name in SETTINGS)
        assert "{choices}" not in shown and "(default: )" not in shown and "(default: None)" not in shown
        _, _, text = shown.partition("--benchmark ")
        assert set(benchmark_names()) <= set(re.findall(r"[a-z0-9-]+", text.partition("--questions ")[0]))


def test_every_setting_has_a_role_and_each_role_a_setting():
    assert {each.role for each in SETTINGS.values()} == {*Role}
    assert "steps" in names_of(Role.ANSWER) and "batch_size" in names_of(Role.SPEED)


@pytest.mark.parametrize(
    "arguments", [["--config", "missing.yaml", "--batch"], ["--ply", str(COMMAND), "--question", "?"]]
)
def test_a_command_that_cannot_run_ends_with_status_2_and_no_traceback(arguments: list[str]):
    ended = run_main(arguments)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert ended.stderr.strip()


@pytest.mark.parametrize(("given", "focal"), [({}, 150.0), ({"focal": 300}, 300.0)])
def test_smaller_views_show_as_much_of_the_room_unless_a_focal_length_is_given(given: dict[str, Any], focal: float):
    question = Question(
        "1", "own", "room", "object_counting", "How many?", ground_truth="2", scan="room.ply", kind=Number("objects")
    )
    settings = checked(policy="random", image_size=(320, 240), **given)
    basis = basis_of(settings, None, Request(Selection.all_of([question])))
    assert basis.settings.focal == focal


class TestReading:
    """All settings are read once for a verb, and twice for one that resumes."""

    @pytest.fixture
    def validations(self, monkeypatch: pytest.MonkeyPatch) -> list[object]:
        counted: list[object] = []
        validate = TypeAdapter.validate_python

        def counting(adapter: TypeAdapter, value: object, **more: Any) -> Any:
            if adapter._type is Settings:
                counted.append(value)
            return validate(adapter, value, **more)

        monkeypatch.setattr(TypeAdapter, "validate_python", counting)
        return counted

    def test_eval_validates_once_and_resume_twice(self, rooms: RoomScans, tmp_path: Path, validations: list[object]):
        assert main(rooms.flags(tmp_path, "--num-questions", "1", "--steps", "0")) == 0
        assert len(validations) == 1
        validations.clear()
        assert main(["resume", "--log-root", str(tmp_path), "--no-report"]) == 0
        assert len(validations) == 2
