"""`roomscout train sft` and `grpo`: what is learned, and that training can be resumed and its result be used."""

import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from conftest import RoomScans, run_in_process, scripted
from datasets import Dataset
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_vl_chat_template
from untrained_checkpoints import write_untrained_checkpoint

from roomscout.command.main import main
from roomscout.models import EXPLORER
from roomscout.runs.trajectories import Trajectory, load_trajectories
from roomscout.training.faces.trl import environment_factory
from roomscout.training.grpo import _parser, environment_of, make_trainer
from roomscout.training.sft import IGNORED, Collator, chosen

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return write_untrained_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def run(rooms: RoomScans, tmp_path_factory) -> Path:
    config = rooms.config(tmp_path_factory.mktemp("runs"), steps=4)
    return run_in_process(config, scripted())


def history(output: Path) -> list[dict]:
    """What the newest checkpoint of a training has logged."""
    newest = max(output.glob("checkpoint-*"), key=lambda each: int(each.name.rpartition("-")[2]))
    return json.loads((newest / "trainer_state.json").read_text())["log_history"]


class TestSft:
    def test_labels_are_the_replies_with_their_end_tokens(self, run: Path, tiny: Path):
        """In a batch of conversations of different lengths, whose loss is that of each alone."""
        trajectories = load_trajectories(run)[:3]
        config, processor = AutoConfig.from_pretrained(tiny), AutoProcessor.from_pretrained(tiny)
        collate = Collator(trajectories, processor, config)
        model = AutoModelForImageTextToText.from_pretrained(tiny)
        rows = [{"conversation": place} for place in range(len(trajectories))]
        batch = collate(rows)
        total = 0.0
        for row, labels, trajectory in zip(rows, batch["labels"], trajectories, strict=True):
            said = [each["text"] for each in trajectory.messages if each["role"] == "assistant"]
            learned = labels[labels != IGNORED]
            assert processor.tokenizer.decode(learned) == "".join(f"{each}<|im_end|>" for each in said)
            total += float(model(**collate([row])).loss.detach()) * len(learned)
        together = float(model(**batch).loss.detach()) * int((batch["labels"] != IGNORED).sum())
        assert together == pytest.approx(total, rel=1e-4)

    def test_positions_are_those_that_the_model_computes(self, run: Path, tiny: Path):
        config = AutoConfig.from_pretrained(tiny)
        batch = Collator(load_trajectories(run), AutoProcessor.from_pretrained(tiny), config)([{"conversation": 0}])
        model = AutoModelForImageTextToText.from_pretrained(tiny)
        kinds = (batch["input_ids"] == config.image_token_id).int()
        theirs, _ = model.model.get_rope_index(batch["input_ids"], kinds, batch["image_grid_thw"])
        assert torch.equal(batch["position_ids"], theirs)

    def test_the_best_samples_are_chosen(self):
        def answer(name: str, score: float | None, status: str = "answered") -> Trajectory:
            question = SimpleNamespace(id=name, scene_name="room")
            return Trajectory(question, (), "1", score, status, None, recorded=lambda: [{}])

        given = [answer("a", 0.2), answer("a", 0.9), answer("a", 0.5), answer("b", 0.1), answer("c", 0.9, "failed")]
        assert [each.score for each in chosen(given, 0.0, 1)] == [0.9, 0.1]
        assert [each.score for each in chosen(given, 0.5, 0)] == [0.9, 0.5]

    @pytest.mark.slow
    def test_an_adapter_is_trained_resumed_and_used(self, rooms: RoomScans, run: Path, tiny: Path, tmp_path, capsys):
        output = tmp_path / "tuned"
        flags = ["train", "sft", str(run), "--model", str(tiny), "--output", str(output), "--min-score", "0"]
        flags += ["--lora-rank", "4", "--learning-rate", "0.01", "--save-steps", "2", "--report-to", "tensorboard"]
        assert main([*flags, "--steps", "2"]) == 0, capsys.readouterr().err
        assert main([*flags, "--steps", "4"]) == 2
        assert "is not empty: add --resume" in capsys.readouterr().err
        assert main([*flags, "--steps", "4", "--resume"]) == 0
        losses = [each["loss"] for each in history(output) if "loss" in each]
        assert len(losses) == 4 and losses[-1] < losses[0]
        assert (output / "curve.png").is_file() and any(output.glob("tensorboard/*tfevents*"))
        config = rooms.config(tmp_path / "runs", model=str(tiny), adapter=output, steps=0, max_new_tokens=4)
        assert len(load_trajectories(run_in_process(config))) == 8

    def test_all_weights_of_the_explorer_with_its_own_prompts(self, run: Path, tmp_path):
        output = tmp_path / "explorer"
        flags = ["train", "sft", str(run), "--model", "embedded", "--output", str(output), "--min-score", "0"]
        assert main([*flags, "--lora-rank", "0", "--steps", "1"]) == 0
        for name in ("prompts.yaml", "views.json"):
            assert (output / name).read_bytes() == (EXPLORER / name).read_bytes()
        AutoModelForImageTextToText.from_pretrained(output)


GRPO = ["train", "grpo", "--env", "steps=1", "image_size=[96, 64]", "focal=60", "renderer=raycast", "datasets=[bare]"]


class TestGrpo:
    def test_what_trl_learns_is_what_was_sampled(self, tiny: Path, tmp_path):
        """The log-probabilities that the loss uses are those with which the replies were drawn, with all views."""
        flags = ["--model", str(tiny), "--output", str(tmp_path), "--generations", "2", "--batch-size", "2"]
        options = _parser().parse_args([*GRPO[2:], *flags, "--max-new-tokens", "6", "--lora-rank", "0"])
        env, _ = environment_of(options)
        with env:
            trainer = make_trainer(options, env, questions=2)
            inputs = trainer._generate_and_score_completions([{"prompt": [{"role": "user", "content": "1"}]}] * 2)
            turns = [each.state.turns for each in trainer._envs]
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
            columns = inputs["completion_ids"].shape[1]
            images = {name: inputs[name] for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids")}
            found, *_ = trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, seen, columns, num_images=[2, 2], **images
            )
        assert len(images["image_grid_thw"]) == 4
        for row, (learned, logps) in enumerate(zip(inputs["tool_mask"].bool(), found, strict=True)):
            sampled = [logprob for turn in turns[row] for logprob in turn.reply.logprobs]
            ended = [turn.reply.finish_reason == "stop" for turn in turns[row]]
            assert int(learned.sum()) == len(sampled) + sum(ended) and not all(ended)
            if not any(ended):
                assert logps[learned].tolist() == pytest.approx(sampled, abs=1e-4)
        assert turns[0][0].reply.tokens != turns[1][0].reply.tokens

    @pytest.mark.slow
    def test_the_explorer_is_trained_and_resumed(self, tmp_path, capsys):
        output = tmp_path / "explorer"
        flags = [*GRPO, "--model", "embedded", "--output", str(output), "--generations", "2", "--batch-size", "2"]
        flags += ["--save-steps", "1", "--max-new-tokens", "8"]
        assert main([*flags, "--steps", "1"]) == 0, capsys.readouterr().err
        assert main([*flags, "--steps", "2", "--resume"]) == 0
        assert [each["step"] for each in history(output) if "reward" in each] == [1, 2]
        assert (output / "curve.png").is_file() and (output / "adapter_model.safetensors").is_file()


class TestToolFace:
    @pytest.mark.slow
    def test_the_example_trains_a_model_with_tools(self, tiny: Path, tmp_path):
        """With TRL's template and tool loop; generation itself is scripted, since an untrained model calls no tool."""
        model, processor = AutoModelForImageTextToText.from_pretrained(tiny), AutoProcessor.from_pretrained(tiny)
        processor.chat_template = qwen3_vl_chat_template
        factory = environment_factory(endless=True, datasets=["bare"], steps=2, image_size=(96, 64), focal=60.0)
        seen: list[int] = []
        said = [
            [_call('I turn. {"rotation_angle_degrees": 90}'), _call('{"answer": "TRUTH", "done": true}'), "Done."],
            [_call("nothing to read"), _call("again nothing"), "Done."],
        ]

        def fake(input_ids, attention_mask, image_grid_thw, **_):
            seen.append(len(image_grid_thw))
            truth = trainer.environments[0]._env.state.question.ground_truth
            replies = [each.pop(0).replace("TRUTH", truth) + "<|im_end|>" for each in said]
            ids = processor.tokenizer(replies, padding=True, padding_side="right", return_tensors="pt").input_ids
            return torch.cat([input_ids, ids], dim=1)

        trainer = GRPOTrainer(
            model=model,
            processing_class=processor,
            environment_factory=factory,
            train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": ""}], "seed": 3}]),
            args=GRPOConfig(
                output_dir=str(tmp_path), max_steps=1, num_generations=2, per_device_train_batch_size=2,
                max_completion_length=2048, report_to="none", use_cpu=True, bf16=False, logging_steps=1,
                learning_rate=0.1,
            ),
        )  # fmt: skip
        before = model.lm_head.weight.clone()
        with patch.object(model, "generate", side_effect=fake):
            trainer.train()
        logged = trainer.state.log_history[0]
        assert seen == [2, 4, 5] and logged["tools/call_frequency"] == 2 and logged["tools/failure_frequency"] == 0
        assert [each.get_reward() for each in trainer.environments] == [1.0, 0.0]
        assert logged["rewards/RoomTool/mean"] == 0.5
        assert not torch.equal(before, model.lm_head.weight)


def _call(text: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'reply', 'arguments': {'text': text}})}\n</tool_call>"
