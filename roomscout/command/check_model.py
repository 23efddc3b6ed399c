"""Tells what this package makes of a model here: of its small files, and with --run by asking it two questions."""

import tempfile
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roomscout.base.shots import VIEW, Shot
from roomscout.base.text import counted, json_in
from roomscout.base.verbs import Parser
from roomscout.edge.api import explore, load_policy, settings_in_python
from roomscout.edge.memory import MemoryPlan, as_bytes, fitting_batch
from roomscout.edge.plan import look_ahead
from roomscout.edge.request import NEW_RUN
from roomscout.edge.settings import Settings
from roomscout.models import PROMPTS_FILE, ModelError
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.source import checkpoint_of, existing_source, file_here
from roomscout.rooms import QUESTIONS_FILE
from roomscout.rooms.writer import kept_rooms

if TYPE_CHECKING:
    from roomscout.models.transformers.encoding import ConversationEncoder

ASKED = {"object_counting": 1, "object_rel_direction_easy": 1}  # the questions about the made room, by type
MODEL = ("model", "device", "dtype", "revision")  # the flags that say which model to load, and how
BATCHES = (1, 8, 32, 64)
FIRST_MOVE = 'I look further. {"rotation_angle_degrees": 90, "answer": null, "done": false}'
EXTRAS = {"xgrammar": "--constrained", "bitsandbytes": "--quantize", "peft": "--adapter"}


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 0 if all is well, else 1. Raises ConfigError, ModelError or RunError."""
    parser = Parser(prog="roomscout check-model")
    parser.add_argument("model", metavar="NAME|FOLDER", help="a hub id, a checkpoint folder, or embedded")
    parser.add_argument("--run", action="store_true", help="load the weights and ask")
    parser.add_argument("--device", help="cpu, cuda or cuda:N (the first GPU, else the CPU)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="the data type of the weights")
    parser.add_argument("--revision", metavar="NAME", help="a branch, tag or commit on the hub")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep the room and the answers here")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="roomscout-check-") as folder:
        root = options.out or Path(folder)
        rooms = kept_rooms(root, 1, 0, ASKED)
        chosen = {name: getattr(options, name) for name in MODEL}
        model = {name: value for name, value in chosen.items() if value is not None}
        looked_at, problems = _of_files(model, rooms)
        if options.run:
            problems += _of_weights(model, rooms, root)
    for problem in problems:
        print(f"Problem: {problem}")
    if problems:
        print("Not all is well.")
        return 1
    unseen = "" if options.run else "; only --run sees what its weights are and reply"
    print(f"All is well. Looked at: {looked_at}{unseen}.")
    return 0


def _of_files(model: dict[str, str], rooms: Path) -> tuple[str, list[str]]:
    """Print what is known without weights; returns what was looked at, and what is wrong."""
    from roomscout.models.transformers.encoding import ConversationEncoder

    name = checkpoint_of(model["model"], model.get("revision"))
    about_rooms = {"questions": rooms / QUESTIONS_FILE, "scan_root": rooms}
    basis, plan = look_ahead(settings_in_python(about_rooms | model, {}), NEW_RUN)
    checkpoint = basis.checkpoint
    assert checkpoint is not None, "a checkpoint is planned for"
    checked = checkpoint.checked
    config = checkpoint.config
    family = checkpoint.family
    encoder = ConversationEncoder(checkpoint.processor, config)
    own = "none of its own: its processor and chat template encode" if family.by_processor else family.name
    print(f"Family: {own} ({config.model_type}, {', '.join(config.architectures or ['no class named'])})")
    width, height = basis.settings.view_size
    assert plan.model is not None and plan.conversation is not None, "a model is planned for"
    print(
        f"Tokens: {plan.conversation.image_tokens} of a view of {width}x{height}, at most "
        f"{plan.conversation.tokens} in {counted(plan.conversation.turns, 'turn')} with replies of "
        f"{plan.conversation.reply_tokens}"
    )
    print(f"Reused across turns: {_reused(encoder, config)}")
    for limit in _ignored_sizes(name, width * height) if family.keeps_sizes else ():
        print(f"Never used: {limit} of its image processor: a view of {width}x{height} keeps its size")
    problems = _print_memory(plan)
    _print_sampling(name)
    missing = [f"{name} ({flag})" for name, flag in EXTRAS.items() if find_spec(name) is None]
    print(f"Not installed: {', '.join(missing) or 'nothing that it could use'}")
    before = ""
    for number, conversation in enumerate(_two_turns(name, rooms, basis.settings)):
        text = encoder.text_of(conversation)
        tokens = len(encoder.encode(conversation).ids)
        print(f"--- turn {number}, {tokens} tokens in all, as the model reads it ---\n{text.removeprefix(before)}")
        before = text
    weights = "no weights, which are not on this machine"
    if checked.files:
        fit = f"names and shapes of {checked.weights:,} weights" if checked.weights else "sizes, not names, of weights"
        weights = f"{fit} in {counted(checked.files, 'file')}"
    return f"configuration, processor, tokenizer, chat template, generation settings, {weights}", problems


def _ignored_sizes(checkpoint: str, pixels: int) -> list[str]:
    """The limits in a checkpoint's files that would resize a view of so many pixels, each with its value."""
    limits = list[str]()
    for file in filter(None, (file_here(checkpoint, f"{kind}_config.json") for kind in ("processor", "preprocessor"))):
        written = json_in(file.read_bytes())
        image = written.get("image_processor") or written
        size = image.get("size") if isinstance(image.get("size"), dict) else {}
        least = {"min_pixels": image.get("min_pixels"), "size shortest_edge": size.get("shortest_edge")}
        most = {"max_pixels": image.get("max_pixels"), "size longest_edge": size.get("longest_edge")}
        limits += [f"{limit} {value}" for limit, value in least.items() if isinstance(value, int) and pixels < value]
        limits += [f"{limit} {value}" for limit, value in most.items() if isinstance(value, int) and pixels > value]
    return limits


def _two_turns(checkpoint: str, rooms: Path, settings: Settings) -> list[Conversation]:
    """The conversation of the first question in its first turn, and in its second after a turn to the left."""
    told = list[Conversation]()

    def move(messages: list[dict[str, Any]]) -> str:
        conversation = Conversation("q")
        for message in messages:
            shots = tuple(Shot(VIEW, image) for image in message["images"])
            conversation.append(Message(message["role"], message["text"], shots))
        told.append(conversation)
        return FIRST_MOVE

    prompts = Path(existing_source(checkpoint)) / PROMPTS_FILE
    explore(
        rooms / QUESTIONS_FILE, policy=load_policy(move, **({"prompts": prompts} if prompts.is_file() else {})),
        progress=False, scan_root=rooms, num_questions=1, image_size=settings.image_size,
        focal=settings.focal, tell=settings.tell,
    )  # fmt: skip
    return told[:2]


def _reused(encoder: "ConversationEncoder", config: Any) -> str:
    from roomscout.models.transformers.layers import keeps_states

    if encoder.chat.recomputed is not None:
        return f"nothing, {encoder.chat.recomputed}"
    kept = "keys, values and states" if keeps_states(config) else "keys and values"
    return f"{kept}, up to the last reply" if encoder.chat.rewrites or keeps_states(config) else kept


def _print_memory(plan: MemoryPlan) -> list[str]:
    model = plan.model
    assert model is not None, "a model is planned for"
    fitting = fitting_batch(plan.kv_bytes or 0, plan.question_bytes, Settings.max_batch_size)
    batches = ", ".join(f"{as_bytes(model.weight_bytes + size * plan.question_bytes)} with {size}" for size in BATCHES)
    print(
        f"Memory on {model.device}: {as_bytes(model.weight_bytes)} for {model.parameters / 1e6:,.1f} million "
        f"parameters in {model.dtype}, {as_bytes(plan.question_bytes)} a question at its longest: {batches} at a time; "
        f"{as_bytes(model.free_bytes)} are usable, so that a batch of {fitting} fits"
    )
    return [] if plan.fits and not plan.exceeds_memory else [plan.why]


def _print_sampling(checkpoint: str) -> None:
    from roomscout.models.transformers.loading import generation_settings, published_sampling

    try:
        temperature, other = published_sampling(checkpoint)
    except ModelError:  # of none: what is wrong with others was found before
        print("Sampling: the checkpoint publishes none")
        return
    named = ", ".join(f"{name} {value:g}" for name, value in {"temperature": temperature, **other}.items())
    print(f"Sampling: {named} as published, used with --generation checkpoint only")
    used = {"do_sample", "temperature", *other, "top_k", "top_p", "transformers_version", "use_cache"}
    ids = {"bos_token_id", "eos_token_id", "pad_token_id"}
    rest = generation_settings(checkpoint).to_diff_dict().keys() - used - ids
    if unused := sorted(name for name in rest if not name.startswith(("_", "output_"))):
        print(f"Never used: {', '.join(unused)} of its generation_config.json")


def _of_weights(model: dict[str, str], rooms: Path, root: Path) -> list[str]:
    """Load the model, ask it about the room together and alone, and print all; returns what is wrong."""
    policy = load_policy(**model)
    runs = []
    for name, size in (("together", len(ASKED)), ("alone", 1)):
        runs.append(explore(
            rooms / QUESTIONS_FILE, policy=policy, log_root=root / name, progress=False, scan_root=rooms, steps=2,
            batch_size=size, max_batched_turns="all",
        ))  # fmt: skip
    for trajectory in runs[0]:
        print(f"{trajectory.question.question} -> {trajectory.answer or trajectory.status}")
        for turn in trajectory.turns:
            height, width = turn.view.shape[:2]
            cost = f"{turn.reply.generated_tokens} tokens in {turn.reply.seconds:.1f} s"
            print(f"  turn {turn.turn}, a view of {width}x{height}, {cost}:")
            print(textwrap.indent(turn.reply.text.strip(), "    "))
    turns = [turn for trajectory in runs[0] for turn in trajectory.turns]
    others = [turn for trajectory in runs[1] for turn in trajectory.turns]
    same = [turn.reply.tokens for turn in turns] == [turn.reply.tokens for turn in others]
    seconds = sum(turn.reply.seconds for turn in others)
    print(f"Views: {root / 'together'}\nReplies alone: {'the same' if same else 'others'}, in {seconds:.1f} s")
    unread = [turn.parse_error for turn in (*turns, *others) if turn.parse_error]
    problems = [trajectory.error for run in runs for trajectory in run if trajectory.error]
    if unread:
        problems.append(f"{len(unread)} of {len(turns) + len(others)} replies hold no action: {unread[0]}")
    if not same and policy.settings.get("dtype") == "float32":
        problems.append("replies to a batch differ from those alone, in float32")
    return problems
