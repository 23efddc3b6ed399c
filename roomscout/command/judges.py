"""Opens the judge that a flag names, and has it score a run at its end."""

import logging
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.base.text import RESULT

if TYPE_CHECKING:
    from roomscout.agent.config import JudgeSettings
    from roomscout.data.judged import Ask

log = logging.getLogger(__name__)


def open_judge(model: str, url: str, key_env: str) -> "Ask":
    """What asks a model behind an OpenAI-compatible server for marks; raises ModelError."""
    from roomscout.data.judged import MAX_TOKENS, SEED, TEMPERATURE
    from roomscout.models import ModelOptions, ServerOptions
    from roomscout.models.judge import Judge

    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs each request
    options = ModelOptions(max_new_tokens=MAX_TOKENS, temperature=TEMPERATURE, seed=SEED)
    key = os.environ.get(key_env, "").strip() or None
    return Judge(model, options, ServerOptions((url,), key, key_env)).ask


def judge_after_run(folder: Path, settings: "JudgeSettings") -> None:
    """Have the judge mark the answers of a run in free text, and log the scores.

    Logs a warning if that fails, since the run is complete and can be judged later.
    """
    from roomscout.analysis.judging import judge_run
    from roomscout.data.benchmark import BenchmarkError
    from roomscout.models import ModelError
    from roomscout.runs import RunError
    from roomscout.runs.reader import RunReader
    from roomscout.scoring.summary import format_summary

    assert settings.judge is not None, "called for a run with --judge"
    where = ["--judge", settings.judge, "--judge-url", settings.judge_url, "--judge-key-env", settings.judge_key_env]
    again = shlex.join([sys.executable, "-m", "roomscout", "rescore", str(folder), *where])
    try:
        ask = open_judge(settings.judge, settings.judge_url, settings.judge_key_env)
        log.log(RESULT, "%s: %s", settings.judge, judge_run(folder, settings.judge, ask))
        reader = RunReader(folder)
        if (summary := reader.summary) is not None:
            for line in format_summary(summary, reader.benchmark):
                log.log(RESULT, "%s", line)
    except KeyboardInterrupt:
        log.warning("Interrupted: the run is complete, and the marks so far are kept. To continue: %s", again)
    except (RunError, BenchmarkError, ModelError) as error:
        log.warning("Not every answer is scored: the judge: %s. The run is complete; to try again: %s", error, again)
