"""Train a vision-language model in endless rooms with TRL's GRPOTrainer, which calls the room as a tool.

python examples/train_with_trl.py Qwen/Qwen3-VL-4B-Instruct trained --steps 100

`roomscout train grpo` trains on the conversations of evaluation instead, in which replies are plain text.
"""

import argparse

from datasets import Dataset
from transformers import AutoProcessor
from trl import GRPOConfig, GRPOTrainer

from roomscout.training.faces.trl import environment_factory

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", help="a checkpoint whose chat template has tools")
parser.add_argument("output", help="where the trained checkpoint goes")
parser.add_argument("--steps", type=int, default=100, help="optimizer steps (%(default)s)")
parser.add_argument("--generations", type=int, default=8, help="episodes per question (%(default)s)")
parser.add_argument("--longest", type=int, default=8192, help="tokens of an episode, views included (%(default)s)")
parser.add_argument("--view", type=int, nargs=2, default=(640, 480), help="width and height of views in pixels")
parser.add_argument("--cpu", action="store_true", help="train on the CPU")
options = parser.parse_args()
if "tool" not in str(AutoProcessor.from_pretrained(options.model).chat_template):  # such as the explorer's
    parser.error(f"the chat template of {options.model} has no tools: train it with roomscout train grpo")

rooms = environment_factory(endless=True, steps=4, image_size=tuple(options.view), rewards={"unreadable_cost": 0.1})
trainer = GRPOTrainer(
    model=options.model,
    environment_factory=rooms,
    train_dataset=Dataset.from_list(
        [{"prompt": [{"role": "user", "content": ""}], "seed": seed} for seed in range(999)]
    ),
    args=GRPOConfig(
        output_dir=options.output,
        max_steps=options.steps,
        num_generations=options.generations,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=options.generations,
        max_completion_length=options.longest,
        max_tool_calling_iterations=5,
        logging_steps=1,
        report_to="none",
        bf16=not options.cpu,
        use_cpu=options.cpu,
        gradient_checkpointing=not options.cpu,
    ),
)
trainer.train()
trainer.save_model(options.output)
print("rewards:", [row["reward"] for row in trainer.state.log_history if "reward" in row])
