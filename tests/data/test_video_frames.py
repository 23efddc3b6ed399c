"""Frames of videos: which ones, their pixels, and what a user reads of files that cannot be used."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from video_files import shade, write_video

from roomscout.data.answers import LETTER_KIND, kind_named
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.video_frames import (
    FrameSize,
    VideoError,
    frames_of_folder,
    frames_of_video,
    sampled,
)

ANY_SIZE = FrameSize(640 * 480)
VIDEO = find_benchmark("vsi-bench").video
METRES = kind_named("number", "m")


@pytest.mark.parametrize(("total", "frames"), [(1, 1), (2, 2), (100, 1), (37, 8), (1000, 32), (33, 32)])
def test_frames_are_those_of_linspace(total: int, frames: int):
    assert list(sampled(total, frames)) == np.linspace(0, total - 1, frames, dtype=int).tolist()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plain.mp4", {}),
        ("b_frames.mp4", {"b_frames": 3}),
        ("variable.mp4", {"b_frames": 2, "variable_rate": True}),
        ("without_an_index.mkv", {"b_frames": 2}),
    ],
)
def test_a_video_has_the_frames_that_can_be_decoded_in_the_order_of_presentation(tmp_path: Path, name, options):
    record, shots = frames_of_video(write_video(tmp_path / name, 30, **options), 7, ANY_SIZE)
    assert record.total == 30 and record.indices == sampled(30, 7) and len(record.sha256) == 64
    assert [shade(shot.image) for shot in shots] == list(record.indices)
    assert all(shot.image.shape == (48, 64, 3) and shot.name == "frame" for shot in shots)
    assert record.in_words == f"7 of 30 frames of {name}: 0, 4, 9, 14, 19, 24, 29"


def test_a_cut_video_has_the_frames_that_are_left_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    whole = write_video(tmp_path / "whole.mp4", 40, movflags="faststart")
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * 0.75)])
    record, shots = frames_of_video(cut, 2, ANY_SIZE)
    assert 2 <= record.total < 40 and record.indices == (0, record.total - 1)
    assert [shade(shot.image) for shot in shots] == list(record.indices)
    assert (
        f"{cut} is damaged or ends early: frames are chosen among the {record.total} of 40 that decode" in caplog.text
    )


def test_frames_are_turned_upright_as_the_file_says(tmp_path: Path):
    _, (shot,) = frames_of_video(write_video(tmp_path / "turned.mp4", 1, rotation=90), 1, ANY_SIZE)
    assert shot.image.shape == (64, 48, 3)
    reddest = np.unravel_index(shot.image[..., 0].astype(int).argmax(), shot.image.shape[:2])
    assert reddest[0] < 32 and shot.image[5, -5, 0] > 200 > shot.image[-5, 5, 0]  # the mark is now at the upper right


@pytest.mark.parametrize("content", [b"", b"no video" * 99])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes):
    (tmp_path / "bad.mp4").write_bytes(content)
    with pytest.raises(VideoError, match=r"bad\.mp4 cannot be read as a video .*: it is damaged; fetch it again"):
        frames_of_video(tmp_path / "bad.mp4", 2, ANY_SIZE)


def test_frames_keep_their_pixels_unless_the_model_takes_others(tmp_path: Path):
    video = write_video(tmp_path / "wide.mp4", 3, size=(160, 96))
    assert frames_of_video(video, 1, ANY_SIZE)[1][0].image.shape == (96, 160, 3)
    assert frames_of_video(video, 1, FrameSize(80 * 48))[1][0].image.shape == (48, 80, 3)
    assert frames_of_video(video, 1, FrameSize(640 * 480, 28, 4 * 28**2))[1][0].image.shape == (84, 168, 3)


def test_a_folder_has_frames_in_natural_order(tmp_path: Path):
    for number in range(12):
        Image.new("RGB", (32, 24), (number, number, number)).save(tmp_path / f"frame_{number}.png")
    (tmp_path / "poses.txt").write_text("no image")
    (tmp_path / "._frame_1.png").write_text("left by a Mac")
    record, shots = frames_of_folder(tmp_path, 4, ANY_SIZE)
    assert record.total == 12 and record.indices == (0, 3, 7, 11) and record.fps is None
    assert [int(shot.image[0, 0, 0]) for shot in shots] == [0, 3, 7, 11]
    with pytest.raises(VideoError, match="has 12 frames, fewer than --frames 13"):
        frames_of_folder(tmp_path, 13, ANY_SIZE)
    (tmp_path / "frame_11.png").write_bytes(b"cut")
    with pytest.raises(VideoError, match=r"frame_11\.png cannot be read"):
        frames_of_folder(tmp_path, 4, ANY_SIZE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(VideoError, match=r"empty has no frame: put images of \.bmp, \.jpeg"):
        frames_of_folder(tmp_path / "empty", 1, ANY_SIZE)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [("B", "B"), ("b.", "B"), ("B. right", "B"), ("C", None), ("**B**", None), ("(B)", None), ("", None), (" B", None)],
)
def test_letters_are_read_as_by_the_official_code(reply: str, answer: str | None):
    assert VIDEO.read(reply, LETTER_KIND, ("A", "B")) == answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        *(("2.5", "2.5"), ("2.5.", "2.5"), ("3 meters", "3"), ("1e1", "1e1"), ("1_000", "1000.0"), ("-2", "-2")),
        *(("two", None), ("2.5m", None), ("1,000", None), ("nan", None), ("inf", None), ("About 3", None)),
    ],
)
def test_numbers_are_read_as_by_the_official_code(reply: str, answer: str | None):
    assert VIDEO.read(reply, METRES, ()) == answer


def test_prompts_are_the_official_ones():
    assert VIDEO.prompt("How many?", ()) == (
        "These are frames of a video.\nHow many?\nPlease answer the question using a single word or phrase."
    )
    assert VIDEO.prompt("Which?", ("A. left", "B. right")) == (
        "These are frames of a video.\nWhich?\nOptions:\nA. left\nB. right\n"
        "Answer with the option's letter from the given choices directly."
    )
