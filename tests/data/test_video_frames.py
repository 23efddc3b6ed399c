"""Frames of videos: which ones, their pixels, and what a user reads of files that cannot be used."""

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from video_files import shade, write_video

from roomscout.data.answers import LETTER_KIND, kind_named
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.video_frames import FrameSize, VideoError, frames_of_folder, frames_of_video, sampled

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
    with pytest.raises(VideoError, match="has 12 frames, fewer than the 13 to show"):
        frames_of_folder(tmp_path, 13, ANY_SIZE)
    (tmp_path / "frame_11.png").write_bytes(b"cut")
    with pytest.raises(VideoError, match=r"frame_11\.png cannot be read"):
        frames_of_folder(tmp_path, 4, ANY_SIZE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(VideoError, match=r"empty has no frame: put images of \.bmp, \.jpeg"):
        frames_of_folder(tmp_path / "empty", 1, ANY_SIZE)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [("B", "B"), ("b.", "B"), ("B. right", "B"), ("C", None), ("**B**", None), ("(B)", None), ("", None), (" B", "B")],
)
def test_letters_are_read_as_by_the_official_code(reply: str, answer: str | None):
    assert VIDEO.read(reply, LETTER_KIND, ("A", "B")) == answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        *(("2.5", "2.5"), ("2.5.", "2.5"), ("3 meters", "3"), ("1e1", "1e1"), ("1_000", "1000.0"), ("-2", "-2")),
        *((" 3", "3"), ("\n3\n", "3")),
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


def matrix(a: int, b: int, c: int, d: int) -> bytes:
    """A display matrix as an MP4 file has it, from 16.16 fixed point."""
    values = (a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)
    return b"".join(each.to_bytes(4, "big", signed=True) for each in values)


@pytest.mark.parametrize(
    ("shown", "corner"),
    [((-1, 0, 0, 1), (0, -1)), ((1, 0, 0, -1), (-1, 0)), ((0, 1, 1, 0), (0, 0)), ((0, -1, -1, 0), (-1, -1))],
    ids=["mirrored", "upside down mirrored", "transposed", "transposed the other way"],
)
def test_frames_are_mirrored_as_a_player_does(tmp_path: Path, shown: tuple[int, ...], corner: tuple[int, int]):
    path = write_video(tmp_path / "video.mp4", 3)
    content = path.read_bytes()
    at = content.rindex(matrix(1, 0, 0, 1))
    path.write_bytes(content[:at] + matrix(*shown) + content[at + 36 :])
    _, (shot,) = frames_of_video(path, 1, FrameSize(10**6))
    height, width, _ = shot.image.shape
    assert (width, height) == ((48, 64) if shown[1] else (64, 48))
    assert [place for place in itertools.product((0, -1), (0, -1)) if shot.image[place][0] > 200] == [corner]


def test_what_a_video_promises_and_how_it_is_meant_is_said(tmp_path: Path, caplog):
    whole = write_video(tmp_path / "video.mkv", 30)
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    frames_of_video(whole, 1, FrameSize(10**6))
    assert "ends early: frames are chosen among" in caplog.text and "of 30 that decode" in caplog.text
    for transfer, name in ((16, "PQ"), (18, "HLG")):
        frames_of_video(write_video(tmp_path / f"{name}.mp4", 3, transfer=transfer), 1, FrameSize(10**6))
        assert f"{name}.mp4 is HDR ({name})" in caplog.text


def test_pixels_that_are_not_square_are_shown_as_they_are_meant(tmp_path: Path):
    _, (shot,) = frames_of_video(write_video(tmp_path / "v.mp4", 2, pixel=Fraction(1, 2)), 1, FrameSize(10**6))
    assert shot.image.shape == (48, 32, 3)


@pytest.mark.parametrize(
    ("content", "why"), [(b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"), (b"<html>", "web page")]
)
def test_what_is_no_video_is_named(tmp_path: Path, content: bytes, why: str):
    (tmp_path / "video.mp4").write_bytes(content)
    with pytest.raises(VideoError, match=why):
        frames_of_video(tmp_path / "video.mp4", 1, FrameSize(10**6))


def test_a_folder_with_depth_beside_colour_has_the_frames_in_colour(tmp_path: Path):
    for number in range(3):
        for name in ("rgb", "depth", "infrared"):
            Image.new("RGB", (8, 8), (200 if name == "rgb" else 9,) * 3).save(tmp_path / f"{number:03}_{name}.png")
    _, shots = frames_of_folder(tmp_path, 3, FrameSize(10**6))
    assert [shot.image[0, 0, 0] for shot in shots] == [200] * 3
    for number in range(3):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number:03}_left.png")
    with pytest.raises(VideoError, match=r"several series of images .*#_left.png, #_rgb.png"):
        frames_of_folder(tmp_path, 3, FrameSize(10**6))
