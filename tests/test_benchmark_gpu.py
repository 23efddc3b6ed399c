"""The GPU benchmark runs on a CPU, records every check, and its checks can fail."""

import json
import time

import pytest
import torch

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import checks, report
from benchmarks.gpu.lab import CPU_SIZES, Check, CheckFailed, Clock, Journal, Lab, Skipped, require
from benchmarks.turns import Workload
from models.transformers.decoding import RowSampling

pytestmark = pytest.mark.usefixtures("one_thread")


def make_lab(minutes=5.0, path=None):
    return Lab(torch.device("cpu"), CPU_SIZES, Clock.of_minutes(minutes), Journal(path))


def crash(lab):
    raise RuntimeError("what broke\nboilerplate")


def fail(lab):
    require(False, "it is wrong")


def skip(lab):
    raise Skipped("not here")


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command; returns its exit status and output."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["gpu", *map(str, arguments)])
        return command.main(), capsys.readouterr().out

    return run


def test_every_check_runs_on_a_cpu_and_is_recorded(run, tmp_path):
    out = tmp_path / "gpu.json"
    status, printed = run("--device", "cpu", "--json", out)
    record = json.loads(out.read_text())
    assert {"machine", "checks", "steps", "ways"} <= record.keys()
    assert not out.with_name("gpu.json.partial").exists()
    assert [each["name"] for each in record["checks"]] == [each.name for each in command.plan(CPU_SIZES)]
    for each in record["checks"]:
        assert each.keys() == {"name", "passed", "seconds", "detail"}
        assert each["passed"] in (True, False, None) and each["seconds"] >= 0 and each["detail"]
        assert each["name"] in printed
    assert not [each for each in record["checks"] if each["passed"] is False]
    assert status == 0 and not record["tracebacks"]
    assert record["machine"]["torch"] == torch.__version__
    eager = [each for each in record["steps"] if each["steps"] == "eager"]
    assert {each["rows"] for each in eager} == set(CPU_SIZES.rows)
    assert all(each["step_ms"] > each["roofline_step_ms"] > 0 for each in record["steps"])
    original, lockstep = (record["ways"][f"tiny {name} eager"] for name in ("alone", "lockstep"))
    assert original["scaled"] and original["ratio"] == 1 and original["seconds"] > original["measured_s"]
    assert not lockstep["scaled"] and lockstep["behind"] == lockstep["seconds"] / lockstep["roofline_s"]
    assert lockstep["ratio"] == original["seconds"] / lockstep["seconds"]
    assert printed.rstrip().endswith(report.markdown(record))
    assert run("--table", out) == (0, report.markdown(record) + "\n")


def test_a_crash_does_not_stop_other_checks_and_sets_the_exit_status(tmp_path, capsys):
    lab = make_lab(path=tmp_path / "gpu.json")
    seen = []
    command.run_checks([Check("broken", 1, crash), Check("fine", 1, lambda lab: seen.append(lab) or "good")], lab)
    broken, fine = json.loads(lab.journal.path.read_text())["checks"]
    assert broken["passed"] is False and broken["detail"].startswith("RuntimeError: what broke (test_benchmark_gpu.py:")
    assert "in crash" in lab.journal.record["tracebacks"]["broken"]
    assert fine["passed"] is True and fine["detail"] == "good" and seen == [lab]
    assert command.exit_status(lab.journal) == 1
    assert "FAILED" in capsys.readouterr().out


def test_a_failure_sets_the_exit_status_and_a_skip_does_not():
    for work, passed, status in ((fail, False, 1), (skip, None, 0)):
        lab = make_lab()
        command.run_checks([Check("one", 1, work)], lab)
        (record,) = lab.journal.record["checks"]
        assert record["passed"] is passed and command.exit_status(lab.journal) == status
        assert record["detail"] in ("it is wrong", "not here") and not lab.journal.record["tracebacks"]


def test_no_check_starts_after_the_deadline():
    lab = make_lab(minutes=0)
    command.run_checks([Check("late", 1, crash)], lab)
    (record,) = lab.journal.record["checks"]
    assert record["passed"] is None and "no time" in record["detail"]


def test_a_check_is_stopped_at_the_deadline():
    lab, started = make_lab(minutes=0.3 / 60), time.monotonic()
    command.run_checks([Check("long", 0, lambda lab: time.sleep(20) or ""), Check("next", 0, crash)], lab)
    assert time.monotonic() - started < 10
    assert [each["passed"] for each in lab.journal.record["checks"]] == [None, None]
    assert "stopped" in lab.journal.record["checks"][0]["detail"]


class TestChecksFail:
    """Each check fails if what it checks is broken."""

    @pytest.fixture(scope="class")
    def lab(self):
        return make_lab()

    @pytest.mark.parametrize("check", [checks.exact, checks.agreement])
    def test_if_padding_is_not_masked(self, lab, check):
        def unmask(model, args, inputs):
            if (mask := inputs.get("attention_mask")) is not None:
                mask.fill_(1)

        check(lab, "eager")  # caches its reference
        hooks = [
            lab.bench("tiny", dtype).model.register_forward_pre_hook(unmask, with_kwargs=True)
            for dtype in (torch.float32, torch.bfloat16)
        ]
        try:
            with pytest.raises(CheckFailed, match="batch"):
                check(lab, "eager")
        finally:
            for hook in hooks:
                hook.remove()

    def test_if_masked_rows_are_nan(self, lab, monkeypatch):
        def attend(query, key, value, attn_mask):
            allowed = attn_mask if attn_mask.dtype == torch.bool else attn_mask > -1
            scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf)
            return scores.softmax(-1) @ value

        monkeypatch.setattr(checks, "scaled_dot_product_attention", attend)
        with pytest.raises(CheckFailed, match="NaN"):
            checks.masked_rows(lab)

    def test_if_sampled_replies_depend_on_the_batch(self, lab, monkeypatch):
        original = RowSampling.__init__

        def seeded_by_index(self, temperature, streams, device):
            original(self, temperature, [str(index) for index in range(len(streams))], device)

        monkeypatch.setattr(RowSampling, "__init__", seeded_by_index)
        with pytest.raises(CheckFailed, match="of a batch's replies equal those of rows alone"):
            checks.sampling(lab)

    def test_if_nothing_runs_out_of_memory(self, lab, monkeypatch):
        monkeypatch.setattr(checks.Watch, "__call__", lambda *_: None)
        with pytest.raises(CheckFailed, match="nothing ran out of memory"):
            checks.halving(lab)


def test_token_shares_count_up_to_the_first_difference():
    first = {(0, 0): (1, 2, 3, 4), (0, 1): (5, 6)}
    assert checks.same_share(first, first) == (1, 1)
    assert checks.same_share(first, {(0, 0): (1, 2, 9, 4), (0, 1): (5, 6)}) == (0.5, 4 / 6)


def test_both_schedules_have_the_same_turns():
    turns = {row: sum(row in call for call in checks.TOGETHER) for row in range(5)}
    assert {row: sum(row in call for call in checks.ALONE) for row in range(5)} == turns
    assert len(Workload(5, max(turns.values()), (96, 64)).begin()) == len(turns)
