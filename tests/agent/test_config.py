"""Flags, YAML files and saved configurations."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import run_main

from explorer.episodes import VIEWS
from roomscout.agent.config import (
    SECTIONS,
    ConfigError,
    ModelSettings,
    RunConfig,
    config_from_dict,
)
from roomscout.agent.resuming import changed_flags, with_absolute_paths
from roomscout.base.wording import flag
from roomscout.command.command_line import Given, parse_command_line, resumed
from roomscout.command.demo import demo_defaults
from roomscout.data.benchmarks import benchmark_names
from roomscout.models import EXPLORER, ModelError
from roomscout.models.views import ViewSettings, view_settings_of
from roomscout.runs.settings import ANSWER_SETTINGS, SECTION_TYPES


def given(*arguments: str) -> Given:
    """A parsed command line."""
    return parse_command_line(list(arguments))


COMMAND = Path(__file__).parents[2] / "render_point_cloud_qwen_angle_batched.py"


def test_flags_win_over_the_yaml_file_and_the_file_over_the_defaults(tmp_path: Path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "steps: 5\nbatch-size: 3\nscenes: [0042, 4_2]\nids: [yes, no, 2024-01-01]\nfocal: 2.5e2\nbatch: yes\n"
        "question: null\n"
    )
    given = parse_command_line(["--config", str(path), "--steps", "2"])
    assert given.over(RunConfig()) == RunConfig.of(
        batch=True, steps=2, batch_size=3, scenes=("0042", "4_2"), ids=("yes", "no", "2024-01-01"), focal=250.0
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stepz: 5", "there is no setting stepz; did you mean steps"),
        ("use_vllm: yes", "there is no setting use_vllm; did you mean engine: vllm"),
        ("limit: 3", "there is no setting limit; did you mean num_questions"),
        ("steps: many", "steps takes a whole number of at least 0, got 'many'"),
        ("- steps", "mapping"),
        ("steps: [", "YAML"),
        ("renderer: crayon", "renderer takes auto, raycast, pyrender, splats, gsplat or blind, got 'crayon'"),
        ("steps: -1", "steps takes a whole number of at least 0"),
        ("seed: !!int many", "could not determine a constructor for the tag"),
        ("{seed: " * 3000, "it is nested too deeply"),
    ],
)
def test_a_bad_yaml_file_is_named_with_its_key(tmp_path: Path, text: str, words: str):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        parse_command_line([f"--config={path}"]).over(RunConfig())
    assert "bad.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": -1}, "--steps takes a whole number of at least 0"),
        ({"batch_size": 0}, "--batch-size takes a whole number of at least 1"),
        ({"num_questions": 0}, "--num-questions takes a whole number of at least 1"),
        ({"focal": 0.5}, "--focal takes a number of at least 1"),
        ({"camera_height": 0.0}, "--camera-height takes a number above 0"),
        ({"focal": float("nan")}, "--focal"),
        ({"camera_pitch": 90.0}, "--camera-pitch takes a number above -90 and below 90"),
        (
            {"image_size": (640, 0)},
            r"--image-size takes two whole numbers of at least 1 \(width and height\) or auto, got 640 0",
        ),
        ({"device": "cuda:0,1"}, "--device takes one device"),
        ({"device": "balanced"}, "--device takes one device"),
        ({"plan": True, "check_data": True}, "--check-data"),
        ({"ply": Path("a.ply"), "question": "Where?", "check_data": True}, "--check-data"),
        ({"plan": True, "continue_from": "recent"}, "--plan"),
        ({"batch": True, "plan_device": "h100"}, "--plan-device .* needs --plan"),
        ({"plan": True, "plan_device": "h100", "device": "cuda"}, "--plan-device .* leave out --device"),
        ({"plan": True, "plan_device": "h100", "dtype": "float32"}, "--plan-device .* --dtype float32"),
        (
            {"plan": True, "plan_device": "h100", "model": "scripted:random"},
            "--plan-device .* scripted:random needs none",
        ),
        ({"question": "Where?"}, "--question needs a scan to ask about: add --ply FILE"),
        ({"ply": Path("a.ply")}, "--ply needs a question to ask: add --question TEXT"),
        ({"batch": True, "question": "q.jsonl"}, r"did you mean --questions q\.jsonl"),
        ({"focal": float("inf")}, "--focal takes a finite number"),
        ({"scene_cache_gib": float("inf")}, "--scene-cache-gib"),
        ({"seed": -1}, "--seed takes a whole number of at least 0"),
        ({"ply": Path("a.ply"), "question": "Where?", "ids": ("3",)}, "--ply asks one question"),
        ({"demo": True, "questions": Path("q.jsonl")}, "--demo makes its own questions"),
        ({"batch": True, "demo": True}, "choose one"),
        ({"options": ("A", "B")}, "--ply"),
        ({"retry_failed": True}, "--retry-failed"),
        ({"renderer": "blind", "first_view": "sharpness"}, "--first-view sharpness"),
        ({"demo": True, "first_view": "sharpness"}, "--first-view sharpness"),
        ({"compile": True, "attention": "eager"}, "--compile does not work with --attention eager"),
    ],
)
def test_an_invalid_value_is_refused_and_its_flag_named(values: dict, words: str):
    with pytest.raises(ConfigError, match=words):
        RunConfig.of(**values).checked()


def test_compiled_steps_work_with_flash_attention_in_the_image_encoder():
    config = RunConfig.of(batch=True, compile=True, attention="flash_attention_2")
    assert config.checked() == config


def test_a_file_and_flags_are_checked_only_in_combination(tmp_path: Path):
    path = tmp_path / "run.yaml"
    path.write_text("batch: true\nrefill: true\n")
    wanted = given("--config", str(path), "--max-batched-turns", "all").over(RunConfig())
    assert wanted.checked() == RunConfig.of(batch=True, refill=True, max_batched_turns="all")
    with pytest.raises(ConfigError, match="--refill"):
        given("--config", str(path)).over(RunConfig()).checked()


def test_a_run_with_all_turns_batched_may_resume_with_refill():
    saved = RunConfig.of(batch=True, max_batched_turns="all")
    assert resumed(saved, given("--refill")).schedule.refill
    with pytest.raises(ConfigError, match="--refill"):
        resumed(RunConfig.of(batch=True), given("--refill"))


def test_a_resumed_run_accepts_its_paths_in_any_form(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    saved = with_absolute_paths(RunConfig.of(model="weights", ply=Path("a.ply"), question="Where?"))
    assert resumed(saved, given("--model", "weights", "--ply", "a.ply", "--question", "Where?")) == saved


@pytest.mark.parametrize("name", ["embedded", "scripted:random"])
def test_a_folder_of_the_same_name_is_not_taken_as_a_model(tmp_path: Path, monkeypatch, name: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    assert with_absolute_paths(RunConfig.of(model=name)).model.model == name


def test_all_invalid_values_of_a_file_are_listed(tmp_path: Path):
    path = tmp_path / "bad.yaml"
    path.write_text("steps: -1\ndevice: gpu\nfocal: x\nstepz: 2\n")
    with pytest.raises(ConfigError, match=r"focal takes .*; device takes .*; steps takes .*; there is no .* stepz"):
        given("--config", str(path))


def test_a_switch_may_be_turned_off_by_a_flag(tmp_path: Path):
    path = tmp_path / "run.yaml"
    path.write_text("batch: true\nkv_reuse: true\n")
    settings = given("--config", str(path), "--no-kv-reuse").settings
    assert settings == {"batch": True, "kv_reuse": False}


def test_a_given_default_overrides_a_saved_value():
    saved = RunConfig.of(batch=True, batch_size=8, request_timeout=5.0)
    now = resumed(saved, given("--batch_size", "auto", "--request-timeout=600"))
    assert (now.schedule.batch_size, now.server.request_timeout) == ("auto", 600.0)


def test_a_changed_setting_is_checked_like_a_given_one():
    assert RunConfig.of(steps=3).having(steps=2).schedule.steps == 2
    with pytest.raises(ConfigError, match="--steps takes a whole number of at least 0, got -2"):
        RunConfig().having(steps=-2)


def test_two_config_files_are_refused():
    with pytest.raises(ConfigError, match="--config is given twice"):
        given("--config", "a.yaml", "--config=b.yaml")


TRAINED = ViewSettings((288, 160), 105.0, 320, ("pose", "extent", "turns"))


@pytest.mark.parametrize("name", ["embedded", "the folder", "a copy"])
def test_the_explorer_gets_the_view_settings_of_its_training_by_any_name(tmp_path: Path, name: str):
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    shutil.copy(EXPLORER / "views.json", copy)
    model = {"embedded": "embedded", "the folder": str(EXPLORER), "a copy": str(copy)}[name]
    assert given("--batch", "--model", model).over(RunConfig()).view == TRAINED
    assert RunConfig.of(model=model).view == TRAINED


def test_given_views_win_over_those_of_the_model():
    config = given("--model", "embedded", "--focal", "90", "--image-size", "64", "32").over(RunConfig())
    assert config.view == replace(TRAINED, image_size=(64, 32), focal=90.0)


def test_other_models_get_the_usual_views():
    assert RunConfig.of(model="scripted:random").view == RunConfig().view == ViewSettings((640, 480), 300.0, 512)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Invalid JSON"),
        ('{"image_size": [3]}', "image_size.1 "),
        ('{"image_size": "big"}', "image_size should be a list, got 'big'"),
        ('{"image": 3}', "there is no image"),
    ],
)
def test_a_damaged_file_of_view_settings_is_named(tmp_path: Path, text: str, why: str):
    (tmp_path / "views.json").write_text(text)
    with pytest.raises(ModelError, match=rf"views\.json is damaged \({why}"):
        RunConfig.of(model=str(tmp_path)).view  # noqa: B018


def test_the_settings_saved_with_the_explorer_are_those_that_training_writes():
    assert view_settings_of("embedded") == VIEWS


def test_a_configuration_survives_saving():
    config = RunConfig.of(
        batch=True, questions=Path("q.csv"), num_questions=3, scenes=("007",), max_batched_turns="all"
    )
    assert config_from_dict(config.as_json, "run.json") == config


def test_a_resumed_run_may_change_speed_but_not_answers():
    saved = RunConfig.of(batch=True, seed=3)
    assert resumed(saved, given("--batch", "--continue", "recent", "--batch-size", "2")).schedule.batch_size == 2
    with pytest.raises(ConfigError, match=r"--temperature, --steps"):
        resumed(saved, given("--steps", "3", "--temperature", "0.5"))


def test_a_resumed_run_takes_a_yaml_file_like_flags(tmp_path: Path):
    path = tmp_path / "more.yaml"
    path.write_text("batch: true\nbatch_size: 2\n")
    assert resumed(RunConfig.of(batch=True, seed=3), given("--config", str(path))).schedule.batch_size == 2
    path.write_text("steps: 3\n")
    with pytest.raises(ConfigError, match="--steps"):
        resumed(RunConfig.of(batch=True), given("--config", str(path)))


def test_auto_keeps_the_value_of_the_run_that_is_resumed():
    saved = with_absolute_paths(RunConfig.of(batch=True, renderer="raycast", dtype="float32"))
    assert resumed(saved, given("--renderer", "auto", "--dtype", "auto")) == saved


def test_a_saved_run_can_be_resumed_from_any_folder():
    config = with_absolute_paths(RunConfig.of(batch=True, questions=Path("q.jsonl"), scan_root=Path("scans")))
    assert config.questions.questions == Path.cwd() / "q.jsonl"
    assert config.views.scan_root.is_absolute()


def test_the_home_folder_may_be_written_as_a_tilde():
    config = with_absolute_paths(
        RunConfig.of(ply=Path("~/a.ply"), question="Where?", scan_root=Path("~/scans"), log_root=Path("~"))
    )
    assert (config.what_to_run.ply, config.views.scan_root, config.output.log_root) == (
        Path.home() / "a.ply",
        Path.home() / "scans",
        Path.home(),
    )


def test_given_flags_override_the_demos_defaults_even_with_the_usual_default():
    flags = ("--model", ModelSettings.model, "--max-batched-turns", "4", "--max-new-tokens", "512")
    assert demo_defaults(given("--demo", *flags)) == RunConfig.of(demo=True, max_new_tokens=512)
    assert demo_defaults(given("--demo", "--max-new-tokens", "512")) == RunConfig.of(
        demo=True, model="embedded", max_batched_turns="all", max_new_tokens=512
    )


def test_every_setting_that_can_change_an_answer_is_named():
    def changed(before: RunConfig, now: RunConfig) -> list[str]:
        return changed_flags(ANSWER_SETTINGS, before.settings, now.settings)

    assert changed(RunConfig(), RunConfig.of(batch_size=3, device="cpu", log_root=Path("x"))) == []
    assert changed(RunConfig(), RunConfig.of(seed=1, image_size=(320, 224))) == ["--image-size", "--seed"]
    assert changed(RunConfig.of(ids=("3", "1")), RunConfig.of(ids=("1", "3"))) == []
    assert changed(RunConfig.of(ids=("3", "1")), RunConfig.of(ids=("3",))) == ["--ids"]
    assert changed(RunConfig.of(options=("a", "b")), RunConfig.of(options=("b", "a"))) == ["--options"]


@pytest.mark.parametrize("flags", [("--ids",), ("--scenes", "--steps", "3"), ("--question_types", "--batch")])
def test_a_filter_without_a_value_is_refused(flags):
    with pytest.raises(ConfigError, match=f"{flags[0]} is given without a value"):
        given("--batch", *flags)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--image-size 640", "--image-size takes two whole numbers of at least 1 (width and height) or auto, got 640"),
        ("--image-size", "--image-size is given without a value: it takes two whole numbers"),
        ("--steps=", "--steps is given without a value: it takes a whole number of at least 0"),
        ("--samples 1 2", "--samples takes one value, got 1 2"),
        ("--samples many", "--samples takes a whole number of at least 1, got many"),
        ("--plan-device k80", "--plan-device takes h200, h100, a100-80, a100-40, l40s, rtx4090 or rtx4080, got k80"),
        ("--question How many", "--question takes one value, got How many: put quotes around a text"),
        ("--refill true", "--refill takes no value: leave out true"),
        ("--kv_reuse=false", "--kv_reuse takes no value: write --no-kv-reuse"),
        ("--batch q.csv", "--batch takes no value; did you mean --batch --questions q.csv?"),
        ("--stepz 3", "there is no flag --stepz; did you mean --steps?"),
        ("--no-steps", "there is no flag --no-steps; did you mean --steps?"),
        ("-x 3", "there is no flag -x; flags are whole words, such as --model"),
    ],
)
def test_a_wrong_flag_is_refused_in_one_sentence(typed: str, words: str):
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}"):
        given(*typed.split())


@pytest.mark.parametrize("name", RunConfig().settings)
@pytest.mark.parametrize("value", [[], ["nonsense"], ["1", "2", "3"], [""], ["-7"]], ids=str)
def test_a_value_that_a_flag_does_not_take_is_refused_by_its_name(name: str, value: list[str]):
    """Whatever the value, it is accepted, or refused with the name of its flag."""
    switch = flag(name)
    try:
        assert given(switch, *value).settings.keys() == {name}
    except ConfigError as refused:
        assert str(refused).startswith(f"{switch} ") and "\n" not in str(refused)  # noqa: PT017 (may be accepted)


@pytest.mark.parametrize("words", ["--up-axis -y --steps 3", "--steps 3 --up_axis=-y", "--steps 3 --up-axis -y"])
def test_a_value_may_begin_like_a_flag(words: str):
    assert given(*words.split()).settings == {"up_axis": "-y", "steps": 3}


def test_the_later_of_two_values_of_a_flag_counts():
    assert given("--steps", "3", "--ids", "a", "b", "--steps=4", "--ids", "c").settings == {"steps": 4, "ids": ("c",)}


def test_help_loads_neither_torch_nor_a_renderer():
    code = (
        f"import runpy, sys; sys.argv = ['x', '--help']\n"
        f"try: runpy.run_path({str(COMMAND)!r}, run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'transformers', 'open3d', 'trimesh', 'pyrender', 'datasets', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=COMMAND.parent)
    assert "--max-batched-turns" in shown.stdout


def test_help_survives_a_closed_pipe():
    with subprocess.Popen(
        [sys.executable, str(COMMAND), "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as it:
        it.stdout.close()
        assert (it.stderr.read(), it.wait()) == (b"", 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nope"],
        ["--steps", "-1"],
        ["--config", "missing.yaml", "--batch"],
        ["--batch", "--demo"],
        ["--ply", str(COMMAND), "--question", "?"],
    ],
)
def test_a_command_that_cannot_run_ends_with_status_2_and_no_traceback(arguments: list[str]):
    ended = run_main(arguments)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert ended.stderr.strip()


def test_every_setting_is_in_one_section_of_the_help(monkeypatch: pytest.MonkeyPatch):
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(set(listed)) == sorted(RunConfig().settings)
    monkeypatch.setenv("COLUMNS", "90")
    shown = run_main(["--help"]).stdout
    places = [shown.index(f"\n{section.title} options:") for section in SECTION_TYPES.values()]
    assert places == sorted(places)
    for name, begin, end in (("--steps", places[4], places[5]), ("--focal", places[2], places[3])):
        assert begin < shown.index(f"\n  {name} ") < end
    assert "Maximum number of moves per question" in shown


def test_the_help_says_nothing_of_an_empty_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = run_main(["--help"]).stdout
    assert "(default: 8)" in shown
    assert "(default: )" not in shown and "(default: None)" not in shown


def test_the_help_names_every_benchmark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "600")  # so that no name is broken
    _, _, text = run_main(["--help"]).stdout.partition("--benchmark ")
    text, _, _ = text.partition("--questions ")
    assert set(benchmark_names()) <= set(re.findall(r"[a-z0-9-]+", text))
