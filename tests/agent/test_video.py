"""--present video: runs on frames of videos, their folders, and what is made of these."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import only_run, results, run_in_process, trajectories
from planned import changed, run_settings, settings_of, spec_of
from scripted_model import ScriptedBackend
from untrained_checkpoints import write_untrained_family
from video_files import shade, write_video

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.replies import parser_of
from roomscout.analysis.rescore import reparsed, rescored
from roomscout.base.errors import ConfigError
from roomscout.data.video_frames import VideoNotFound
from roomscout.edge.api import load_policy
from roomscout.edge.plan import memory_lines
from roomscout.edge.settings import Settings
from roomscout.models.conversation import Conversation, folded
from roomscout.models.openai.dialect import encoded_message
from roomscout.runs.reader import RunReader

pytestmark = pytest.mark.usefixtures("one_thread")
SCENES = {"first": 12, "second": 30, "short": 3}
"""The scenes with a video, by their numbers of frames; there is another one without."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions about four scenes, and videos of three of them; there is no scan."""
    root = tmp_path_factory.mktemp("videos")
    for scene, frames in SCENES.items():
        write_video(root / "videos" / "scannet" / f"{scene}.mp4", frames, b_frames=2)
    rows = []
    for scene in (*SCENES, "absent"):
        rows.append((scene, "object_counting", "How many chair(s) are in this room?", None, "4"))
        asked = "If I am standing by the tv and facing the bed, is the lamp to the left or the right of the bed?"
        rows.append((scene, "object_rel_direction_easy", asked, ["A. left", "B. right"], "B"))
    columns = ("scene_name", "question_type", "question", "options", "ground_truth")
    lines = [
        {"id": number, "dataset": "scannet"} | dict(zip(columns, row, strict=True)) for number, row in enumerate(rows)
    ]
    (root / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def config_of(data: Path, root: Path, **changes: Any) -> Settings:
    settings = {"present": "video", "videos": data / "videos", "questions": data / "questions.jsonl"}
    return settings_of(**settings | {"frames": 4, "log_root": root, "report": False} | changes)


def replying(seen: list[Conversation]) -> ModelPolicy:
    """A model that keeps what it is asked, and answers 4 or b."""

    def reply(conversation: Conversation) -> str:
        seen.append(Conversation(conversation.id, list(conversation.messages)))
        return "b. right" if "Options:" in conversation.messages[-1].text else "about 4"

    return ModelPolicy(ScriptedBackend(reply))


@pytest.fixture(scope="module")
def seen() -> list[Conversation]:
    return []


@pytest.fixture(scope="module")
def folder(data: Path, seen: list[Conversation], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logs")
    return run_in_process(config_of(data, root), replying(seen))


def test_a_model_sees_all_frames_with_the_official_words_and_no_others(folder: Path, seen: list[Conversation]):
    assert len(seen) == 4
    for conversation in seen:
        (message,) = conversation.messages
        assert message.role == "user" and message.text.startswith("These are frames of a video.\n")
    places = {shade(conversation.images[-1]) for conversation in seen}
    assert [shade(image) for image in seen[0].images] == [0, 3, 7, 11] and places == {11, 29}
    assert seen[0].shots == seen[1].shots, "the questions of a scene share its frames"
    for messages in (seen[0].messages, folded(seen[0].messages)):
        content = json.loads(encoded_message(messages[0]))["content"]
        assert [part["type"] for part in content] == ["image_url"] * 4 + ["text"]


def test_answers_are_scored_officially_and_scenes_without_enough_frames_fail(folder: Path, data: Path):
    rows = results(folder)
    assert [row["score"] for row in rows] == [0, 1, 0, 1, 0, 0, 0, 0]
    assert [row["status"] for row in rows] == ["exhausted", "answered"] * 2 + ["failed"] * 4
    assert rows[1]["answer"] == "B" and {row["failed_part"] for row in rows[4:]} == {"video"}
    assert "short.mp4 has 3 frames, fewer than the 4 to show" in rows[4]["error"]
    assert rows[6]["error"].startswith(f"there is no {data / 'videos' / 'scannet' / 'absent.mp4'}")
    reader = RunReader(folder)
    assert not any(each.changed or each.note for each in rescored(reader, reparsed(reader, parser_of(reader, False))))


def test_the_small_image_is_made_again_if_a_crash_has_left_nothing_of_it(folder: Path, data: Path, tmp_path: Path):
    again = Path(shutil.copytree(folder, tmp_path / folder.name))
    (again / "q001" / "render_00.png").write_bytes(bytes(100))
    assert run_settings(config_of(data, tmp_path), again, policy=replying([])).status == 1
    assert results(again) == results(folder) and trajectories(again) == trajectories(folder)


def test_a_run_records_which_frames_were_shown_and_one_small_image_of_them(folder: Path, data: Path):
    reader = RunReader(folder)
    assert "video protocol, frames=4, image_size=640 480, " in reader.facts.protocol
    assert ", video_input=frames, " in reader.facts.protocol and "video_words=" in reader.facts.protocol
    assert "max_new_tokens=16" in reader.facts.protocol and "moves" not in reader.facts.protocol
    assert reader.facts.setting("frames") == 4 and reader.facts.prompts is None
    (turn,) = reader.turns(reader.rows[0].episode)
    assert turn.frames is not None and turn.frames.indices == (0, 3, 7, 11) and turn.frames.total == 12
    assert turn.frames.file == str(data / "videos" / "scannet" / "first.mp4") and turn.parse_error is not None
    files = {path.name for path in (folder / "q001").iterdir()}
    assert files == {"messages.json", "render_00.png", "turns.jsonl"}
    assert turn.view.shape == (120, 4 * 160, 3)
    said = json.loads((folder / "q001" / "messages.json").read_text())
    assert [each["role"] for each in said] == ["user", "assistant"] and said[0]["frames"] == "render_00.png"


def test_a_run_resumes_to_the_same_answers(data: Path, folder: Path, tmp_path: Path):
    class Killed(Exception):
        pass

    def reply(conversation: Conversation) -> str:
        if "Options:" in conversation.messages[-1].text:
            raise Killed
        return "about 4"

    config = config_of(data, tmp_path)
    assert run_settings(changed(config, batch_size=1), policy=ModelPolicy(ScriptedBackend(reply))).status == 3
    run = only_run(tmp_path)
    assert len(RunReader(run).rows) < 8
    (run / "results.jsonl").write_text("")  # killed between the turn and the row
    asked: list[Conversation] = []
    run_settings(config, folder=run, policy=replying(asked))
    assert results(run) == results(folder) and len(asked) == 3
    assert json.loads((run / "q001" / "messages.json").read_text())[0]["role"] == "user"
    with pytest.raises(ConfigError, match="--frames would change answers"):
        run_settings(changed(config, frames=3), folder=run, policy=replying(asked))


def test_samples_and_folders_of_frames(data: Path, tmp_path: Path):
    from PIL import Image

    for number in range(5):
        path = tmp_path / "frames" / "scannet" / "first" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (48, 36), (50 * number,) * 3).save(path)
    seen: list[Conversation] = []
    changes = {"videos": tmp_path / "frames", "samples": 2, "scenes": ["first"], "temperature": 1.0}
    folder = run_in_process(config_of(data, tmp_path / "logs", **changes), replying(seen))
    assert len(results(folder)) == 4 and [image.shape for image in seen[0].images] == [(36, 48, 3)] * 4
    (turn,) = RunReader(folder).turns(RunReader(folder).rows[0].episode)
    assert turn.frames is not None and (turn.frames.total, turn.frames.indices) == (5, (0, 1, 2, 4))


def test_without_any_video_a_run_does_not_begin(data: Path, tmp_path: Path):
    config = config_of(data, tmp_path, scenes=["absent"])
    with pytest.raises(VideoNotFound, match=r"there is no .*absent\.mp4: name the folder of") as refused:
        run_settings(config, policy=replying([]))
    assert refused.value.setting == "videos"
    assert not list(tmp_path.iterdir())


def test_a_real_model_answers_and_the_plan_counts_its_tokens(data: Path, tmp_path: Path):
    checkpoint = str(write_untrained_family(tmp_path / "tiny", "qwen2_5_vl"))
    config = config_of(data, tmp_path / "logs", model=checkpoint, device="cpu", image_size=(112, 56), scenes=["first"])
    folder = run_in_process(config)
    (turn,) = RunReader(folder).turns(RunReader(folder).rows[0].episode)
    assert turn.reply.images_encoded == 1 and 0 < turn.reply.generated_tokens <= 16
    assert "frames=4, image_size=112 56, " in RunReader(folder).facts.protocol
    assert ", video_input=native, " in RunReader(folder).facts.protocol
    assert spec_of(config, folder=folder).rules.native
    loaded = load_policy(checkpoint, device="cpu")
    assert spec_of(config_of(data, tmp_path / "logs", image_size=(112, 56), scenes=["first"]), loaded).rules.native
    assert turn.view.shape[:2] == (160, 4 * 160), "frames of 56x56 pixels"
    lines = memory_lines(config)
    planned = next(line for line in lines if line.startswith("Tokens: at most"))
    assert "(72 an image, 16 a reply" in planned and int(planned.split()[3]) >= turn.reply.prompt_tokens + 16
    assert lines[0] == "Questions: 2 on 1 video, at most 1 turn each"


def test_frames_are_images_unless_model_and_frames_make_a_video(data: Path, tmp_path: Path):
    from PIL import Image

    images = tmp_path / "frames" / "scannet" / "first"
    images.mkdir(parents=True)
    for number in range(5):
        Image.new("RGB", (48, 36)).save(images / f"{number}.jpg")
    qwen, other = (str(write_untrained_family(tmp_path / name, name)) for name in ("qwen2_5_vl", "internvl"))
    old = write_untrained_family(tmp_path / "old", "qwen2_5_vl")
    (old / "chat_template.jinja").write_text(
        (old / "chat_template.jinja").read_text().replace("<|video_pad|>", "<|image_pad|>")
    )
    for changes, shown in (
        ({"model": qwen}, "native"),
        ({"model": qwen, "frames": 1}, "frames"),
        ({"model": qwen, "videos": tmp_path / "frames"}, "frames"),
        ({"model": other}, "frames"),
        ({"model": str(old)}, "frames"),
        ({"model": "any", "engine": "openai", "base_url": "http://127.0.0.1:9/v1"}, "frames"),
    ):
        spec = spec_of(
            config_of(data, tmp_path, device="cpu" if "engine" not in changes else "auto", scenes=["first"], **changes)
        )
        assert spec.record.conditions["video_input"] == shown and spec.rules.native == (shown == "native"), changes
