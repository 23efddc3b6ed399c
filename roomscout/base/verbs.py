"""What the verbs share: their parser."""

import argparse
import re
from collections.abc import Set
from typing import NoReturn

from roomscout.base.text import did_you_mean

FIRST_FLAGS = {  # of this field's first scripts, written with dashes, and what they are called today
    "--verbose": "--log-level debug",
    "--use-vllm": "--engine vllm",
    "--max-num-seqs": "--concurrency",
    "--max-model-len": "planned from --steps and --max-new-tokens",
    "--tp": "--tensor-parallel-size",
    "--node-rank": "--shard I/N",
    "--num-nodes": "--shard I/N",
    "--image-wh": "--image-size",
    "--model-path": "--model",
    "--output-dir": "--log-root",
    "--output": "--log-root",
}


def written_today(typed: str, flags: Set[str]) -> str:
    """How a parser with these flags writes one that it lacks; empty if it has nothing of the kind, or if the flag that
    was typed begins with another one of its own, as --output with --out."""
    dashed = typed.replace("_", "-")
    if dashed in flags:
        return f"it is written {dashed}"
    today = FIRST_FLAGS.get(dashed, "")
    needed = set(re.findall(r"--[a-z-]+", today))
    begins_with = {flag for flag in flags if dashed.startswith(flag)} - needed
    return f"today it is {today}" if needed and needed <= flags and not begins_with else ""


class Parser(argparse.ArgumentParser):
    """A parser that says what to write for a flag that does not exist: its name of today, or a similar one."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and end the process with status 2."""
        words = message.partition("unrecognized arguments: ")[2].split()
        typed = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
        if typed is not None:
            flags = self._option_string_actions.keys()
            names = [flag[2:] for flag in flags if flag[2:]]
            similar = did_you_mean(typed.lstrip("-"), names, "--help lists the flags", "--")
            message = f"there is no flag {typed}; {written_today(typed, flags) or similar}"
        super().error(message)
