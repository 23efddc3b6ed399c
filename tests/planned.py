"""Settings as tests give them, and runs of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from roomscout.agent.console import lines_kept_for_log
from roomscout.agent.loop import main_vsi_bench_loop
from roomscout.agent.policies import Policy
from roomscout.agent.session import Outcome
from roomscout.agent.spec import RunSpec
from roomscout.data.questions import Selection
from roomscout.edge import resolve as resolve_module
from roomscout.edge.basis import basis_of
from roomscout.edge.engine import memory_of
from roomscout.edge.flags import Given, flags_parser, read_flags
from roomscout.edge.memory import MemoryPlan
from roomscout.edge.plan import look_ahead, plan
from roomscout.edge.request import Request
from roomscout.edge.resolve import absolute, read_saved, resolve
from roomscout.edge.resuming import saved_settings
from roomscout.edge.rules import rules_of
from roomscout.edge.settings import Settings
from roomscout.edge.world import world_of
from roomscout.runs.reader import RunReader


def settings_of(**values: Any) -> Settings:
    """The settings with these values, which may conflict."""
    return read_saved(values, "")


def changed(settings: Settings, **changes: Any) -> Settings:
    """Settings with some changed."""
    return resolve_module.changed(settings, changes)


def checked(**values: Any) -> Settings:
    """The settings of a new run; raises ConfigError if they conflict."""
    return resolve(values)


def from_flags(*flags: str) -> Given:
    """What flags give."""
    return read_flags(flags_parser(), flags, "eval", ("batch",))


def spec_of(
    settings: Settings,
    policy: Policy | None = None,
    asked: Selection | None = None,
    folder: Path | None = None,
    ply: Path | None = None,
    **more: Any,
) -> RunSpec:
    """The run of these settings, or of those over a run's in a folder, which resumes."""
    given = dict(vars(settings))
    if policy is not None or settings.policy is not None:
        given.pop("model", None)  # which the policy replaces
    run = None if folder is None else RunReader(folder)
    saved = None if run is None else saved_settings(run)
    scan = None if ply is None else absolute(ply)
    request = Request(asked, ply=scan, run=run, **more)
    return plan(resolve(given, saved, one_scan=ply is not None), policy, request)


def run_settings(
    settings: Settings,
    folder: Path | None = None,
    policy: Policy | None = None,
    asked: Selection | None = None,
    ply: Path | None = None,
    retry_failed: bool = False,
    **more: Any,
) -> Outcome:
    """Plan a run of these settings, and carry it out; a given policy takes the place of the one that they name."""
    if policy is not None:
        settings = replace(settings, policy=None)
    with lines_kept_for_log():
        spec = spec_of(settings, policy, asked, folder, ply, retry_failed=retry_failed)
        return main_vsi_bench_loop(spec, **more)


def memory_plan(settings: Settings, previews: bool = False) -> MemoryPlan:
    """The memory plan of a run of these settings."""
    if previews:
        return look_ahead(settings, Request())[1]
    basis = basis_of(resolve(vars(settings)), None, Request())
    return memory_of(basis, rules_of(basis, world_of(basis)))
