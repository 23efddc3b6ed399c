"""Settings as tests give them, and runs of them."""

from pathlib import Path
from typing import Any

from roomscout.agent.console import lines_kept_for_log
from roomscout.agent.policies import Policy
from roomscout.agent.running import Outcome, main_vsi_bench_loop
from roomscout.data.questions import Selection
from roomscout.edge.conflicts import require_no_conflict
from roomscout.edge.draft import Draft
from roomscout.edge.memory import MemoryPlan
from roomscout.edge.planning import plan
from roomscout.edge.reading import changed, read_settings
from roomscout.edge.settings import Settings


def settings_of(**values: Any) -> Settings:
    """The settings with these values."""
    return read_settings(values)


def checked(settings: Settings) -> Settings:
    """The settings; raises ConfigError if they conflict."""
    require_no_conflict(settings)
    return settings


def run_settings(
    settings: Settings,
    folder: Path | None = None,
    policy: Policy | None = None,
    asked: Selection | None = None,
    **more: Any,
) -> Outcome:
    """Plan a run of these settings, and carry it out; a given policy takes the place of the one that they name."""
    if policy is not None:
        settings = changed(settings, policy=None)
    with lines_kept_for_log():
        return main_vsi_bench_loop(plan(settings, policy, asked, folder), **more)


def memory_plan(settings: Settings) -> MemoryPlan:
    """The memory plan of a run of these settings."""
    return Draft.of(settings).resolved().memory
