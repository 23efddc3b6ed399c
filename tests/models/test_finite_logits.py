"""Logits that are not finite fail their question at once, on every path of decoding, and no other row of the batch."""

import math
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import RoomScans, decoding, results, run_in_process, run_main
from other_checkpoints import write_other
from safetensors.torch import load_file, save_file
from untrained_checkpoints import write_untrained_checkpoint, write_untrained_family

from roomscout.models import ModelError, ModelOptions, ReplyFormat
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.decoding import FiniteLogits

pytestmark = pytest.mark.usefixtures("one_thread")
MOST = 12  # tokens of a reply
FORM = ReplyFormat()
PATHS = {
    "eager": {},
    "recomputed": {"kv_reuse": False},
    "sampled": {"temperature": 1.0, "generation": {"top_p": 0.9, "top_k": 500}},
    "penalized": {"generation": {"repetition_penalty": 1.1, "presence_penalty": 0.1}},
    "log-probabilities": {"logprobs": True},
    "constrained": {},
    "alternatives": {},
    "graphs": {},
    "qwen3_5": {},
    "lfm2_vl": {},
}
"""The options of the model on each path of decoding."""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {
        "qwen3_5": write_untrained_family(root / "qwen3_5", "qwen3_5"),
        "lfm2_vl": write_other(root / "lfm2_vl", "lfm2_vl"),
        "": write_untrained_checkpoint(root / "tiny"),
    }


class Lab:
    """A model on one path of decoding, whose embeddings are not those of its head, and three conversations."""

    def __init__(self, path: str, folder: Path) -> None:
        self.path = path
        options = ModelOptions(device="cpu", max_new_tokens=MOST, **PATHS[path])
        self.backend = TransformersBackend.from_checkpoint(str(folder), options)
        self.model = self.backend._loaded[0]
        head = self.model.get_output_embeddings()
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        self.embeddings = self.model.get_input_embeddings().weight.data
        if path == "graphs":
            decoding(self.backend, capture=lambda step: lambda: step())
        self.form = ReplyFormat(grammar="root ::= [a-zA-Z ]{20,40}") if path == "constrained" else FORM
        self.conversations = []
        for number, asked in enumerate(["Where is the door?", "Ω?", "How large is it?"]):
            pixels = np.random.default_rng(number).integers(0, 256, (64, 96, 3), dtype=np.uint8)
            self.conversations.append(Conversation(f"q{number}", [Message.of_views(asked, pixels)]))
        if path == "alternatives":
            self.backend.generate(self.conversations, self.form)
            self.conversations = [each.asking_instead(f"Now. {each.messages[-1].text}") for each in self.conversations]

    def outcomes(self) -> list[tuple[int, ...] | str]:
        """The tokens of each reply, or why there is none."""
        made = {}
        self.backend.generate_each(self.conversations, self.form, lambda index, reply: made.update({index: reply}))
        found = []
        for number in range(len(self.conversations)):
            try:
                found.append(made[number]().tokens)
            except ModelError as error:
                found.append(str(error))
        return found

    def prompts(self) -> list[list[int]]:
        return [self.backend._encoder.encode(each).ids for each in self.conversations]


def not_finite(token: int) -> str:
    return f"the model's logits for token {token} of the reply are not finite numbers"


@pytest.mark.parametrize("path", PATHS)
def test_only_the_row_with_a_damaged_weight_fails_and_at_once(path: str, checkpoints: dict[str, Path]):
    lab = Lab(path, checkpoints.get(path, checkpoints[""]))
    well = lab.outcomes()
    prompts = lab.prompts()
    seen = Counter(id for ids in [*map(set, prompts), *map(set, well)] for id in ids)
    in_prompt = next(id for id in prompts[1] if seen[id] == 1)
    alone = [place for place, id in enumerate(well[1]) if seen[id] == 1 and well[1].count(id) == 1]
    steps = min(MOST, len(well[1]) + 1)  # with that of an end token
    cases = [(in_prompt, 1)] + [(well[1][place], place + 2) for place in {alone[0], alone[-1]}]
    for id, token in cases:
        lab.backend.release_all()
        kept = lab.embeddings[id].clone()
        lab.embeddings[id] = math.nan
        if path == "alternatives":
            lab.backend.generate([lab.conversations[0].origin, lab.conversations[2].origin], lab.form)
        first, hit, last = lab.outcomes()
        assert (first, last) == (well[0], well[2])
        assert hit == well[1] if token > steps else hit.startswith(not_finite(token))
        lab.embeddings[id] = kept
        assert lab.outcomes() == well, "nothing of the failed reply is reused"

    lab.model.get_output_embeddings().weight.data[:] = math.nan
    assert all(isinstance(said, str) and said.startswith(not_finite(1)) for said in lab.outcomes())
    with pytest.raises(ModelError, match="not finite"):
        lab.backend.generate(lab.conversations, lab.form)


@pytest.mark.parametrize(
    ("row", "count"),
    [([0.0, -math.inf], 2), ([1e38, -1e38], 2), ([math.nan, 0.0], 1), ([math.inf, 0.0], 1), ([-math.inf] * 2, 1)],
)
def test_minus_infinity_alone_is_a_probability_of_0(row: list[float], count: int):
    finite = FiniteLogits(2, torch.device("cpu"))
    for scores in ([[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], row]):
        finite(None, torch.tensor(scores))
    assert finite.tokens() == [2, count]


def test_a_run_fails_the_question_and_check_model_says_it(
    rooms: RoomScans, checkpoints: dict[str, Path], tmp_path: Path
):
    folder = Path(shutil.copytree(checkpoints[""], tmp_path / "damaged"))
    weights = load_file(folder / "model.safetensors")
    weights = {name: weight * (math.nan if "layers.1.mlp" in name else 1) for name, weight in weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    run = run_in_process(
        rooms.config(tmp_path, model=str(folder), num_questions=3, steps=1, device="cpu", image_size=(64, 64))
    )
    assert [row["status"] for row in results(run)] == ["failed"] * 3
    assert all(not_finite(1) in row["error"] for row in results(run))
    ended = run_main(["check-model", str(folder), "--device", "cpu", "--run"])
    assert (ended.returncode, f"Problem: {not_finite(1)}" in ended.stdout) == (1, True), ended.stdout
