"""Models without a family of their own: replies are those of the library's own chat template, processor and loop."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from conftest import RoomScans, results, run_in_process, run_main
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedModel, ProcessorMixin

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.replies import action_format
from roomscout.models import ModelError, ModelOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers import families
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.decoding import never_generated
from roomscout.models.transformers.footprint import Checkpoint
from roomscout.models.transformers.loading import end_tokens
from tests.other_checkpoints import OTHERS, write_other
from tests.untrained_checkpoints import UNTRAINED, write_untrained_family

ACTION = action_format()
TOKENS, TURNS = 6, 3
FAST = ("glm4v", "gemma3")
"""Positions of the model's own, and a sliding window."""
RECOMPUTED = {
    "gemma3": "a sliding window",
    "gemma4": "a sliding window",
    "aya_vision": "a sliding window",
    "molmo2": "which tokens are of images",
    "minicpmv4_7": "differently beside others",
    "llava_onevision": "differently beside others",
    "pixtral": "chat template rewrites",
    "qwen4_exp": "whose cache is not reused",
}
"""Why turns of these kinds are recomputed; those of the others are not."""
CLASSES = {"molmo2": "Molmo2Config", "minicpmv4_7": "MiniCPMV4_7Config"}
"""What transformers has only since 5.18."""
pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Library:
    """A checkpoint as transformers alone runs it, and as this package does without a family for it."""

    kind: str
    path: Path
    model: PreTrainedModel
    processor: ProcessorMixin
    backend: TransformersBackend

    def said(self) -> Message:
        """A reply with its ids, with the whitespace that the template puts before replies."""
        encoder = self.backend._encoder
        question = Message.of_views("?", np.zeros((64, 64, 3), np.uint8))
        before = encoder.chat.render([question])
        later = encoder.chat.render([question, Message("assistant", ""), question])
        gap = "" if encoder.chat.opening else later[len(before.rstrip()) : later.index("reply", len(before.rstrip()))]
        gap = gap.removeprefix(before[len(before.rstrip()) :])
        text = f"{encoder.chat.opening}I see.\n</think>\n\nI turn." if encoder.chat.opening else "I turn."
        return Message("assistant", text, tokens=tuple(encoder.reply_ids(gap + text)))

    def chat(self, conversation: Conversation) -> list[dict[str, Any]]:
        encoder, messages = self.backend._encoder, conversation.messages
        if encoder.chat.folds_system:  # this template refuses system messages
            system, first, *others = messages
            messages = [replace(first, text=f"{system.text}\n\n{first.text}"), *others]
        chat = []
        for message in messages:
            said: dict[str, Any] = {"role": message.role}
            text = message.text
            if message.role == "assistant" and encoder.chat.splits_thoughts:
                said["reasoning_content"], text = "I see.", "I turn."
            images = [{"type": "image"}] * len(message.shots)
            chat.append(said | {"content": [*images, {"type": "text", "text": text}]})
        return chat

    def reply(self, conversation: Conversation) -> tuple[list[int], list[float]]:
        """The greedy reply's ids without the end token, and their log-probabilities."""
        text = self.processor.apply_chat_template(
            self.chat(conversation), tokenize=False, add_generation_prompt=True, preserve_thinking=True
        )
        pictures = [[Image.fromarray(image) for image in conversation.images]]
        inputs = self.processor(text=[text], images=pictures, return_tensors="pt", add_special_tokens=False)
        ends = end_tokens(self.model.generation_config, self.processor.tokenizer)
        vocabulary = self.model.config.get_text_config().vocab_size
        made = self.model.generate(
            **inputs, max_new_tokens=TOKENS, do_sample=False, eos_token_id=ends, pad_token_id=ends[0],
            suppress_tokens=never_generated(self.processor.tokenizer, ends, vocabulary),
            return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
        ids = made.sequences[0, inputs["input_ids"].shape[1] :].tolist()
        ids = ids[: next((at for at, id in enumerate(ids) if id in ends), len(ids))]
        return ids, [float(step[0].log_softmax(0)[id]) for id, step in zip(ids, made.logits, strict=False)]


def view(name: str, turn: int) -> np.ndarray:
    return np.random.default_rng([turn, *name.encode()]).integers(0, 256, (96, 128, 3), dtype=np.uint8)


def begin(number: int, words: int) -> Conversation:
    conversation = Conversation(f"q{number}", [Message("system", "You are inside a room.")])
    conversation.append(Message.of_views("Where is the door? " * words, view(conversation.id, 0)))
    return conversation


@pytest.fixture(scope="module")
def library(request, tmp_path_factory) -> Library:
    kind, folder = request.param, tmp_path_factory.mktemp("models") / "tiny"
    if kind in OTHERS and not hasattr(transformers, CLASSES.get(kind, "AutoModel")):
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    if kind == "smolvlm":
        pytest.importorskip("num2words", reason="SmolVLM's processor needs num2words")
    (write_other if kind in OTHERS else write_untrained_family)(folder, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "FAMILIES", ())
        options = ModelOptions(device="cpu", max_new_tokens=TOKENS, logprobs=True)
        backend = TransformersBackend.from_checkpoint(str(folder), options)
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    return Library(kind, folder, model, AutoProcessor.from_pretrained(folder), backend)


def kinds(*names: str, among=(*OTHERS, *UNTRAINED)):
    others = [pytest.param(name, marks=pytest.mark.slow) for name in among if name not in names]
    return pytest.mark.parametrize("library", [*names, *others], indirect=True, scope="module")


@kinds(*FAST)
def test_replies_equal_those_of_the_librarys_own_template(library: Library):
    """Over three turns in a batch of two unlike lengths, and as alternatives."""
    conversations = [begin(0, 1), begin(1, 5)]
    for turn in range(TURNS):
        alternatives = [each.asking_instead("Answer now.") for each in conversations]
        for asked in (conversations, alternatives):
            for conversation, reply in zip(asked, library.backend.generate(asked, ACTION), strict=True):
                ids, logprobs = library.reply(conversation)
                assert list(reply.tokens) == ids
                assert reply.logprobs == pytest.approx(logprobs, abs=1e-3)
                reuses = library.kind not in RECOMPUTED and turn > 0
                assert (reply.reused_tokens > 0) == reuses or asked is alternatives
                computed = len(conversation.images) if library.kind in RECOMPUTED else asked is conversations
                assert reply.images_encoded == computed or library.backend._runner._pool.keeps_states
        for conversation in conversations:
            conversation.append(library.said())
            conversation.append(Message.of_views("You moved.", view(conversation.id, turn + 1)))
    assert RECOMPUTED.get(library.kind, "") in (library.backend._encoder.chat.recomputed or "")


@kinds("idefics3", among=OTHERS)
def test_questions_are_answered_in_three_turns(library: Library, rooms: RoomScans, tmp_path: Path):
    config = rooms.config(tmp_path, model=str(library.path), steps=2, num_questions=2, batch_size=2)
    rows = results(run_in_process(config, ModelPolicy(library.backend)))
    assert [(row["status"], row["turns"]) for row in rows] == [("exhausted", TURNS)] * 2


@pytest.mark.slow
def test_the_command_says_what_a_model_without_a_family_costs(rooms: RoomScans, tmp_path: Path):
    folder = write_other(tmp_path / "tiny", "gemma3")
    ended = run_main(rooms.flags(tmp_path, "--model", str(folder), "--steps", "2", "--num-questions", "1"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("of which the processor of gemma3 makes what it takes") == 1
    assert "every turn recomputes the whole conversation: it has layers, such as those with a sliding" in ended.stdout


@pytest.mark.parametrize(("kind", "size"), [("glm4v", (112, 84)), ("idefics3", (640, 480)), ("gemma3", (56, 56))])
def test_views_have_the_size_that_the_processor_leaves_alone(kind: str, size: tuple[int, int], tmp_path: Path):
    """Of 640x480 pixels, those processors make few pixels, tiles, or a square."""
    folder = str(write_other(tmp_path / "tiny", kind))
    family = Checkpoint(folder).family
    assert family.default_view == size and family.why_not(*size) is None
    processor, view = AutoProcessor.from_pretrained(folder), np.zeros((size[1], size[0], 3), np.uint8)
    text = processor.apply_chat_template([{"role": "user", "content": [{"type": "image"}]}], tokenize=False)
    ids = processor(text=[text], images=[[Image.fromarray(view)]], return_tensors="pt")["input_ids"]
    config = AutoModelForImageTextToText.from_pretrained(folder).config
    around = ids.numel() - int(torch.isin(ids, torch.tensor([config.image_token_id])).sum())
    assert ids.numel() - around <= Checkpoint(folder, "cpu", "float32").footprint().image_tokens(*size) <= ids.numel()


def test_a_model_that_does_not_write_about_images_is_refused(tmp_path: Path):
    from transformers import BertConfig

    BertConfig().save_pretrained(tmp_path / "bert")
    with pytest.raises(ModelError, match="'bert' checkpoint, which transformers does not list among its image-text"):
        Checkpoint(str(tmp_path / "bert"))


def test_code_of_a_repository_is_never_run(tmp_path: Path):
    folder = tmp_path / "InternVL3_5-8B"
    folder.mkdir()
    code = {"AutoConfig": "configuration_internvl_chat.InternVLChatConfig"}
    (folder / "config.json").write_text(json.dumps({"model_type": "internvl_chat", "auto_map": code}))
    (folder / "configuration_internvl_chat.py").write_text("raise SystemExit('run')")
    with pytest.raises(ModelError, match=r"needs code of its own repository, .* such as .*InternVL3_5-8B-HF$"):
        Checkpoint(str(folder))
