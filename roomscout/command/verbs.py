"""The verbs of the command, such as `roomscout ask`: what each does, and which module carries it out.

To add a verb, write its `main(arguments) -> int` in a module with base/verbs.py, and an entry of VERBS. The command
prints the errors that say what is refused, and returns 2.
"""

import importlib
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from roomscout import SCRIPT
from roomscout.base.errors import UsageError
from roomscout.base.text import did_you_mean, either


@dataclass(frozen=True)
class Verb:
    """One verb of the command."""

    does: str  # what it does, in a sentence
    examples: tuple[str, str]  # two commands
    target: str  # the "module:function" that takes its arguments and returns the exit status
    group: str  # one of GROUPS, under which it is listed
    sections: tuple[str, ...] = ()
    """The classes of edge/sections.py whose settings its help shows, the main ones first; none for a verb that has a
    parser of its own."""
    takes: str = ""  # what comes before the flags in that help
    more: str = ""  # further sentences of its help
    parts: bool = False  # whether its first argument names a command

    def load(self) -> Callable[[Sequence[str]], int]:
        """What carries it out, and returns the exit status; imports its module."""
        return resolve_name(self.target)


GROUPS = {
    "ask": "Ask",
    "evaluate": "Evaluate",
    "look": "Look at a run or a scan",
    "compare": "Compare runs",
    "make": "Make and convert",
    "train": "Train",
}
"""The groups of verbs, with their titles."""
RUN_SECTIONS = (
    "QuestionSettings",
    "RenderSettings",
    "ModelSettings",
    "ScheduleSettings",
    "OutputSettings",
    "ControlSettings",
    "ServerSettings",
    "PlaySettings",
    "ClusterSettings",
)
"""What a run of many questions takes, the main sections first."""
VERBS = {
    "ask": Verb(
        "Ask a question about one scan, and show each turn.",
        (
            'roomscout ask room.ply "How many chair(s) are in this room?" --model embedded',
            "roomscout ask room.ply --model embedded",
        ),
        more="Without a question, asks for one after another.",
        target="roomscout.command.ask:main",
        group="ask",
        sections=RUN_SECTIONS[1:7],
        takes="SCAN [QUESTION]",
    ),
    "eval": Verb(
        "Answer and score the questions of a benchmark or a file.",
        (
            "roomscout eval --scan-root scans --max-batched-turns 6",
            "roomscout eval --questions rooms/questions.jsonl --scan-root rooms --model embedded",
        ),
        target="roomscout.command.eval:main",
        group="evaluate",
        sections=RUN_SECTIONS,
    ),
    "play": Verb(
        "Have people answer in a browser, in place of the model.",
        (
            "roomscout play --questions rooms/questions.jsonl --scan-root rooms --num-questions 4",
            "roomscout play --benchmark rooms --num-questions 20 --annotator anna ben --samples 2",
        ),
        target="roomscout.command.play:main",
        group="evaluate",
        sections=(*RUN_SECTIONS[:2], *RUN_SECTIONS[3:6], "PlaySettings"),
    ),
    "resume": Verb(
        "Continue a run where it stopped: the newest, or one you name.",
        ("roomscout resume", "roomscout resume runs/first --retry-failed"),
        target="roomscout.command.resume:main",
        group="evaluate",
        sections=RUN_SECTIONS[1:],
        takes="[RUN]",
    ),
    "plan": Verb(
        "Print the size, memory and batch size of a run, and stop.",
        ("roomscout plan --scan-root scans", "roomscout plan --scan-root scans --device cpu --model embedded"),
        target="roomscout.command.plan:main",
        group="evaluate",
        sections=RUN_SECTIONS,
    ),
    "check": Verb(
        "Print how many questions have a scan.",
        ("roomscout check --scan-root scans", "roomscout check --questions rooms/questions.jsonl --scan-root rooms"),
        target="roomscout.command.check:main",
        group="evaluate",
        sections=RUN_SECTIONS[:2],
    ),
    "check-model": Verb(
        "Say whether a model works here, and what it costs.",
        ("roomscout check-model Qwen/Qwen3-VL-8B-Instruct", "roomscout check-model embedded --run"),
        more="Reads its small files; --run loads it and asks two questions about a made room for three turns, "
        "together and alone. The exit status is 0 only if all is well.",
        target="roomscout.command.check_model:main",
        group="evaluate",
    ),
    "demo": Verb(
        "Try the included small model on four made rooms.",
        ("roomscout demo", "roomscout demo --num-questions 8 --log-root demo_runs"),
        target="roomscout.command.demo:main",
        group="ask",
        sections=RUN_SECTIONS[:5],
    ),
    "preview": Verb(
        "Draw the first view and a plan of scans, and say what is wrong.",
        ("roomscout preview room.ply", "roomscout preview --questions rooms/questions.jsonl --scan-root rooms"),
        more="Takes the scans that you name, or all that a question file or a benchmark asks about. With questions, "
        "the plans show where they start, and where photos to be found were taken.",
        target="roomscout.command.preview:main",
        group="look",
    ),
    "rooms": Verb(
        "Write procedural rooms and questions about them.",
        ("roomscout rooms rooms --rooms 1", "roomscout rooms noisy --rooms 8 --noise 0.01 --holes 5"),
        target="roomscout.rooms.command:main",
        group="make",
    ),
    "report": Verb(
        "Show a run in a browser: scores, plots and all questions.",
        ("roomscout report runs/first", "roomscout report runs/first --plots paper"),
        more="Each question has its views, and its path on a map. Writes a page that opens from disk alone; an "
        "unfinished run has one, too. With --plots, writes plots and tables for a paper instead.",
        target="roomscout.analysis.report.command:main",
        group="look",
    ),
    "serve": Verb(
        "Show runs in a browser while they go on.",
        ("roomscout serve runs/first", "roomscout serve runs --port 9000"),
        more="A run has its report, a folder a list of its runs. Nothing in them changes. Only this computer can open "
        "the page; from another one, forward the port with ssh -L.",
        target="roomscout.analysis.serve.runs:main",
        group="look",
    ),
    "replay": Verb(
        "Show one answer of a run in 3D: the scan and the camera's path.",
        ("roomscout replay runs/first q036", "roomscout replay runs/first q036 --out to_mail.html"),
        more="Shows what each view saw, and the conversation turn by turn. Writes a page that opens from disk alone.",
        target="roomscout.analysis.replay.lookup:main",
        group="look",
    ),
    "merge": Verb(
        "Make one run of the parts that --shard answered.",
        ("roomscout merge merged runs/*_shard*of8", "roomscout merge sofar runs/*_shard*of8 --partial"),
        more="The parts must have equal settings and the same full question list; they are not changed. "
        "Images become hard links if the file system supports them.",
        target="roomscout.command.merging:main",
        group="make",
    ),
    "wrong": Verb(
        "List the wrong and partly right answers of a run.",
        ("roomscout wrong runs/first", "roomscout wrong runs/first --type object_counting --scene scene0011_00"),
        more="Shows folder, score, turns, type and scene of each answer that scores less than 1, then the "
        "question, and the chosen and the right answer.",
        target="roomscout.analysis.wrong:main",
        group="look",
    ),
    "compare": Verb(
        "Compare runs over the same questions, with intervals.",
        ("roomscout compare runs/small runs/large", "roomscout compare runs/free runs/one_view --even-if steps"),
        more="Each is compared with the first one, per task and overall, with intervals over scenes; also shows how "
        "many scenes the difference takes, and which questions flipped.",
        target="roomscout.analysis.compare.command:main",
        group="compare",
    ),
    "study": Verb(
        "Run a whole comparison, such as a model against its controls.",
        ("roomscout study controls studies/controls --demo", "roomscout study budget studies/budget --scan-root scans"),
        more="Writes a table with intervals and a page. Its cells run in turn; the same command resumes it.",
        target="roomscout.command.study:main",
        group="compare",
    ),
    "leaderboard": Verb(
        "Make a table of runs with score, interval, protocol and cost.",
        ("roomscout leaderboard runs/*_batched", "roomscout leaderboard runs/*_batched --out board.md board.csv"),
        more="Prints one row per run, best first, as Markdown, with a column for each task. Runs that must not be "
        "compared (other questions, tasks, or protocol) stand in separate tables. Turns, tokens, seconds and cost are "
        "per question.",
        target="roomscout.analysis.compare.leaderboard:main",
        group="compare",
    ),
    "failures": Verb(
        "Split wrong answers: never saw an object in question, or did.",
        ("roomscout failures runs/first", "roomscout failures runs/first --type object_counting"),
        more="Prints a table by question type, then the answers that score less than 1 with the objects that "
        "their question needs. Works out what was in view from the recorded poses, the scans and the "
        "boxes of their objects, and keeps it in RUN/seen.jsonl.",
        target="roomscout.analysis.failures:main",
        group="look",
    ),
    "boxes": Verb(
        "Import boxes of objects that others published.",
        (
            "roomscout boxes scannet_meta_info_val.json --scan-root scans",
            "roomscout boxes 3d_annotation.json --scan-root scans --out scans/boxes.json",
        ),
        more="Reads VSI-Bench's meta information (data/meta_info/*.json of its repository) or ReVSI's "
        "metadata/3d_annotation.json. Checks for each scene that the boxes fit the surface of its scan, "
        "and writes those that do in RoomScout's format.",
        target="roomscout.envs.import_boxes:main",
        group="make",
    ),
    "rescore": Verb(
        "Read and score the replies of a run again, without a model.",
        ("roomscout rescore runs/first", "roomscout rescore runs/first --out rescored.csv"),
        more="Applies today's parser and scorer, and shows what changes; the records of the run stay. With --judge, "
        "answers in free text get marks, which are kept beside them and score the run. With --prices, its summary "
        "says what it cost.",
        target="roomscout.command.reports:rescore",
        group="make",
    ),
    "export": Verb(
        "Write the answers of a run for inspect or for fine-tuning.",
        ("roomscout export runs/first --to inspect", "roomscout export runs/first --to messages --out train.jsonl"),
        more="Only the finished ones are written, in the format of that tool; the run is not changed.",
        target="roomscout.analysis.exports.command:main",
        group="make",
    ),
    "train": Verb(
        "Train a model on conversations of runs, or by its own scores.",
        (
            "roomscout train sft runs/first --model embedded --output training_runs/sft",
            "roomscout train grpo --model embedded --output training_runs/grpo",
        ),
        target="roomscout.training.command:main",
        group="train",
        parts=True,
    ),
}

EXAMPLES = tuple(VERBS[name].examples[which] for name, which in (("ask", 0), ("eval", 1)))
ABOUT = """\
Let a vision-language model explore 3D scans of rooms and answer spatial questions."""
CHOOSE = """\
Choose what to run by a verb, or by --batch (many questions), --ply with --question (one question about one scan),
--demo (generated rooms and the included small model) or --continue (an earlier run)."""


def overview() -> str:
    """One screen: the verbs by group with a line each, where more help is, and examples."""
    width = 2 + max(map(len, VERBS))
    columns = max(shutil.get_terminal_size().columns, width + 40)
    lines = []
    for group, title in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, verb in VERBS.items():
            if verb.group == group:
                does = textwrap.shorten(verb.does, columns - width - 2, placeholder=" ...")
                lines.append(f"  {name:<{width}}{does}")
    command = f"python {SCRIPT.name}" if Path(sys.argv[0]).name == SCRIPT.name else "roomscout"
    examples = [f"  {command}{example.removeprefix('roomscout')}" for example in EXAMPLES]
    more = f"{command} VERB --help lists the flags of a verb. docs/README.md says which page is about which task."
    return "\n".join([ABOUT, *lines, "", "Examples:", *examples, "", more])


def show_all_flags() -> int:
    """Print the verbs and the help of all flags; returns the exit status."""
    from roomscout.command.words import WORDS, show_help

    sections = ("QuestionSettings", *RUN_SECTIONS[1:])
    show_help("roomscout VERB", f"{CHOOSE}\n\n{overview()}", sections, tuple(WORDS))
    return 0


def show_verb(name: str) -> int:
    """Print the help of a verb: what it does, two examples, and what it takes; returns the exit status."""
    verb = VERBS[name]
    does = textwrap.fill(f"{verb.does} {verb.more}", max(40, shutil.get_terminal_size().columns - 2))
    about = f"{does}\n\n  {verb.examples[0]}\n  {verb.examples[1]}"
    if not verb.sections:
        print(f"{about}\n")
        return verb.load()(["--help"])
    from roomscout.command.words import show_help

    takes = getattr(importlib.import_module(verb.target.partition(":")[0]), "TAKES", ())
    show_help(f"roomscout {name} {verb.takes}".strip(), about, verb.sections, takes)
    return 0


def find_verb(name: str) -> Verb:
    """The verb of this name; raises UsageError if there is none."""
    if name not in VERBS:
        raise UsageError(f"there is no verb {name}; {did_you_mean(name.lower(), VERBS, f'use {either(VERBS)}')}")
    return VERBS[name]
