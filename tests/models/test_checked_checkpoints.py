"""What is wrong with a checkpoint is found before its weights are loaded, and all commands say it in the same words."""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import RoomScans, run_in_process, run_main, scripted
from other_checkpoints import OTHERS, write_other
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, AutoProcessor
from untrained_checkpoints import write_untrained_checkpoint, write_untrained_family

from roomscout.base.waiting import show_steps
from roomscout.models import EXPLORER, ModelError
from roomscout.models.transformers.footprint import Checkpoint
from roomscout.models.transformers.weights import load_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")
WEIGHTS = "model.safetensors"
Damage = Callable[[Path], object]
Tensors = dict[str, torch.Tensor]


def in_json(name: str, **values: Any) -> Damage:
    """Sets these values in a JSON file; None removes one."""

    def change(folder: Path) -> None:
        path = folder / name
        written = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**written, **values}))

    return change


def without(*names: str) -> Damage:
    return lambda folder: [(folder / name).unlink() for name in names]


def truncated(name: str) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-100])


def saved(change: Callable[[Tensors], Tensors]) -> Damage:
    return lambda folder: save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def prefixed(prefix: str) -> Damage:
    return saved(lambda weights: {prefix + name: weight for name, weight in weights.items()})


def in_parts(folder: Path) -> None:
    AutoModelForImageTextToText.from_pretrained(folder).save_pretrained(folder, max_shard_size="300KB")
    (folder / WEIGHTS).unlink()


def first_part(folder: Path) -> Path:
    return min(folder.glob("model-*-of-*.safetensors"))


def lacking_a_part(folder: Path) -> None:
    in_parts(folder)
    first_part(folder).rename(f"{first_part(folder)}.part")


def with_a_part_truncated(folder: Path) -> None:
    in_parts(folder)
    truncated(first_part(folder).name)(folder)


def with_parts_alone(folder: Path) -> None:
    in_parts(folder)
    (folder / f"{WEIGHTS}.index.json").unlink()


def with_a_torn_index(folder: Path) -> None:
    in_parts(folder)
    truncated(f"{WEIGHTS}.index.json")(folder)


def emptied(weights: Tensors) -> Tensors:
    return {name: weight if place else weight.new_zeros(0) for place, (name, weight) in enumerate(weights.items())}


def with_other_processor(folder: Path) -> None:
    other = write_untrained_family(folder.parent / "other", "internvl")
    AutoProcessor.from_pretrained(other).save_pretrained(folder)


def with_more_tokens(folder: Path) -> None:
    processor = AutoProcessor.from_pretrained(folder)
    processor.tokenizer.add_tokens([f"<new {number}>" for number in range(2000)])
    processor.save_pretrained(folder)


def an_adapter(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    in_json("adapter_config.json", base_model_name_or_path="tiny")(folder)


def as_a_pickle(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    truncated("pytorch_model.bin")(folder)


def quantized(method: str, **more: Any) -> Damage:
    return in_json("config.json", quantization_config={"quant_method": method, **more})


def without_safetensors(folder: Path) -> Path:
    """The pickle that takes the place of a checkpoint's safetensors, which go."""
    (folder / WEIGHTS).unlink()
    return folder / "pytorch_model.bin"


DAMAGES: dict[str, tuple[Damage, str]] = {
    "a shard missing": (lacking_a_part, "lacks 1 file of the"),
    "a shard truncated": (with_a_part_truncated, "is truncated or damaged"),
    "no index": (with_parts_alone, "has its weights in parts, such as"),
    "a torn index": (with_a_torn_index, "index.json is damaged"),
    "a download in progress": (lambda folder: (folder / WEIGHTS).rename(folder / f"{WEIGHTS}.part"), "only model"),
    "no weights": (without(WEIGHTS), "has no weights (model.safetensors)"),
    "truncated weights": (truncated(WEIGHTS), f"({WEIGHTS} is truncated or damaged"),
    "a truncated pickle": (as_a_pickle, "(pytorch_model.bin is truncated or damaged"),
    "weights of a wrapper": (prefixed("module."), "names of its weights begin with module."),
    "weights of PEFT": (prefixed("base_model.model."), "names of its weights begin with base_model."),
    "no weight in the file": (saved(lambda weights: {}), "weights are missing"),
    "other things in a pickle": (
        lambda folder: torch.save({**load_file(folder / WEIGHTS), "step": 3}, without_safetensors(folder)),
        "step in it is no weight",
    ),
    "an empty weight": (saved(emptied), "1 of its weights are empty, such as"),
    "a weight missing": (saved(lambda weights: dict([*weights.items()][1:])), "1 of its weights are missing"),
    "a weight of another shape": (
        saved(lambda weights: {name: weight[: len(weight) // 2].clone() for name, weight in weights.items()}),
        "misshapen",
    ),
    "another family's processor": (with_other_processor, "is the processor of another model"),
    "more tokens than outputs": (with_more_tokens, "is the processor of another model (its tokenizer has"),
    "no tokenizer": (without("tokenizer.json"), "has no tokenizer (tokenizer.json)"),
    "no processor": (without("processor_config.json"), "has no image processor (processor_config.json)"),
    "no template": (without("chat_template.jinja"), "has no chat template"),
    "a template without images": (
        lambda folder: (folder / "chat_template.jinja").write_text("{{ messages[-1].content[-1].text }} reply"),
        "chat template shows 0 of 1 view as the image token",
    ),
    "a template that is none": (lambda folder: (folder / "chat_template.jinja").write_text("{% if %}"), "template"),
    "a float8 dtype": (in_json("config.json", dtype="float8_e4m3fn"), "dtype 'float8_e4m3fn', in which no model can"),
    "torch's name of a dtype": (in_json("config.json", dtype="torch.bfloat16"), "write bfloat16"),
    "no heads": (in_json("config.json", text_config={"num_attention_heads": 0}), "cannot be loaded ("),
    "a configuration of texts": (in_json("config.json", vision_config="none"), "cannot be loaded ("),
    "a torn configuration": (truncated("config.json"), "cannot be loaded ("),
    "a temperature in words": (in_json("generation_config.json", temperature="0.7"), "has temperature '0.7'"),
    "a temperature below 0": (in_json("generation_config.json", temperature=-1), "has temperature -1, and takes"),
    "a top_p of 7": (in_json("generation_config.json", top_p=7), "has top_p 7, and takes a number from 0 to 1"),
    "an end in words": (in_json("generation_config.json", eos_token_id="2"), "has eos_token_id '2'"),
    "torn generation settings": (truncated("generation_config.json"), "generation_config.json is damaged"),
    "AWQ without its package": (quantized("awq", bits=4, group_size=128), "cannot be loaded here ("),
    "GPTQ without its package": (quantized("gptq", bits=4), "cannot be loaded here ("),
    "compressed-tensors without it": (quantized("compressed-tensors"), "cannot be loaded here ("),
    "an adapter alone": (an_adapter, "is an adapter (adapter_config.json), not a checkpoint"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def commands(rooms: RoomScans, tmp_path_factory) -> dict[str, list[str]]:
    """Command lines by verb, to which a checkpoint is added."""
    root = tmp_path_factory.mktemp("runs")
    run = run_in_process(rooms.config(root, steps=4), scripted())
    about_rooms = ["--questions", str(rooms.questions), "--scan-root", str(rooms.root), "--log-root", str(root)]
    ply = min(rooms.root.rglob("*.ply"))
    return {
        "check-model": ["check-model", "--device", "cpu", "--out", str(root / "checked")],
        "plan": ["plan", *about_rooms, "--device", "cpu", "--model"],
        "eval": ["eval", *about_rooms, "--device", "cpu", "--model"],
        "ask": ["ask", str(ply), "How many chairs are there?", "--log-root", str(root), "--device", "cpu", "--model"],
        "train sft": ["train", "sft", str(run), "--min-score", "0", "--output", str(root / "tuned"), "--model"],
    }


def some_slow(names: Iterable[str]) -> list[Any]:
    """Every second name is for the slow tests."""
    return [pytest.param(name, marks=pytest.mark.slow) if number % 2 else name for number, name in enumerate(names)]


@pytest.mark.parametrize("damage", some_slow(DAMAGES))
def test_every_command_refuses_a_damaged_checkpoint_in_the_same_words(
    damage: str, tiny: Path, commands: dict[str, list[str]], tmp_path: Path
):
    folder = Path(shutil.copytree(tiny, tmp_path / "tiny"))
    do, words = DAMAGES[damage]
    do(folder)
    said = {}
    for verb, line in commands.items():
        ended = run_main([*line, str(folder)])
        said[verb] = (ended.returncode, ended.stderr.strip().splitlines()[-1])
        assert "Traceback" not in ended.stderr, f"{verb}: {ended.stderr}"
    assert len(set(said.values())) == 1, said
    status, sentence = said["eval"]
    assert (status, words in sentence) == (2, True), sentence


@pytest.mark.parametrize(("kind", "weights"), [("embedded", 110), ("molmo2", 66), ("qwen3_5_moe", 145)])
def test_names_that_are_converted_or_tied_pass(kind: str, weights: int, tmp_path: Path):
    """Whoever loads a checkpoint checks it, so that the tests of each family say that it passes."""
    write = write_other if kind in OTHERS else write_untrained_family
    folder = EXPLORER if kind == "embedded" else write(tmp_path / "tiny", kind)
    checked = Checkpoint(str(folder), "cpu").checked
    assert (checked.files, checked.weights) == (1, weights)


TEMPLATES: dict[str, Callable[[str], Damage]] = {
    "chat_template.json": lambda template: in_json("chat_template.json", chat_template=template),
    "processor_config.json": lambda template: in_json("processor_config.json", chat_template=template),
    "tokenizer_config.json": lambda template: in_json("tokenizer_config.json", chat_template=template),
    "a list of named ones": lambda template: in_json(
        "tokenizer_config.json",
        chat_template=[{"name": "tools", "template": "-"}, {"name": "default", "template": template}],
    ),
}
"""Where the hub's checkpoints keep a chat template, but in chat_template.jinja."""


@pytest.mark.parametrize("place", TEMPLATES)
def test_a_chat_template_is_found_wherever_the_hub_keeps_one(place: str, tiny: Path, tmp_path: Path):
    folder = Path(shutil.copytree(tiny, tmp_path / "tiny"))
    template = (folder / "chat_template.jinja").read_text()
    without("chat_template.jinja")(folder)
    TEMPLATES[place](template)(folder)
    checkpoint = Checkpoint(str(folder), "cpu")
    assert checkpoint.checked.weights > 0 and checkpoint.processor.chat_template == template


@pytest.mark.parametrize(
    ("limits", "ignored"),
    [
        ({"size": {"shortest_edge": 65536, "longest_edge": 16777216}, "max_pixels": 16384}, "max_pixels 16384"),
        ({"size": {"shortest_edge": 65536, "longest_edge": 16777216}, "max_pixels": 10**6}, None),
        ({"size": 336, "image_processor": None, "min_pixels": "3136"}, None),
    ],
)
def test_check_model_says_what_it_saw_and_which_sizes_are_ignored(
    limits, ignored, tiny: Path, commands, tmp_path: Path
):
    folder = Path(shutil.copytree(tiny, tmp_path / "tiny"))
    in_json("preprocessor_config.json", **limits)(folder)
    said = run_main([*commands["check-model"], str(folder)]).stdout
    line = f"Never used: {ignored} of its image processor: a view of 640x480 keeps its size\n"
    assert (line in said) == (ignored is not None) and "Tokens: 300 of a view of 640x480" in said
    assert re.search(r"^All is well\. Looked at: .*, names and shapes of \d+ weights in 1 file; only --run", said, re.M)


def test_weights_that_are_quantized_take_the_memory_of_their_files(tiny: Path, tmp_path: Path):
    loaded, processor = load_checkpoint(str(tiny), torch.float32, torch.device("cpu"), "8bit")
    for part in (loaded, processor):
        part.save_pretrained(tmp_path)
    checkpoint = Checkpoint(str(tmp_path), "cpu", "float32")
    planned = checkpoint.footprint()
    assert checkpoint.checked.weights == 0
    assert planned.weight_bytes == checkpoint.checked.stored_bytes < 4 * planned.parameters
    truncated(WEIGHTS)(tmp_path)
    with pytest.raises(ModelError, match=r"model\.safetensors is truncated or damaged"):
        Checkpoint(str(tmp_path), "cpu", "float32").footprint()


def test_what_a_command_waits_for_counts_the_files_of_a_checkpoint(tiny: Path, tmp_path: Path):
    loaded, processor = load_checkpoint(str(tiny), torch.float32, torch.device("cpu"))
    loaded.save_pretrained(tmp_path, max_shard_size="200KB")
    processor.save_pretrained(tmp_path)
    files = len(list(tmp_path.glob("model-*.safetensors")))
    said: list[str] = []
    show_steps(lambda what, about: said.append(f"{what} {about}"))
    load_checkpoint(str(tmp_path), torch.float32, torch.device("cpu"))
    show_steps(None)
    loading = f"Loading {tmp_path.name}"
    assert files > 1 and said == [loading, *(f"{loading}: {file + 1} of {files} files" for file in range(files))]
