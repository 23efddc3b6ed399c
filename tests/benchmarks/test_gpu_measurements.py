"""The tests and measurements for GPUs run on a CPU, are recorded, and the tests can fail."""

import json
import sys
from pathlib import Path

import pytest
import torch
from conftest import run_command
from gpu import test_replies

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import report
from benchmarks.gpu.lab import CPU_SIZES, cudnn_attention, open_lab
from benchmarks.turns import Workload

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lab():
    with open_lab("cpu") as lab:
        yield lab


@pytest.mark.slow
def test_tests_and_measurements_run_on_a_cpu_and_are_recorded(tmp_path, monkeypatch, capsys):
    """All but those that compile, of which tests/models has one."""
    out, chosen = tmp_path / "gpu.json", "reuse[graphs] eager sampled masked halved freed planned egl load replies,"
    arguments = ["--device", "cpu", "--json", str(out), "--only", *chosen.split()]
    done = run_command([sys.executable, "-m", "benchmarks.gpu", *arguments], cwd=CHECKOUT)
    record = json.loads(out.read_text())
    assert done.returncode == 0 and not record["tracebacks"], done.stdout
    names = [each["name"] for each in record["outcomes"]]
    assert len(names) == 18 and all(name in done.stdout for name in names)
    assert {each["passed"] for each in record["outcomes"]} <= {True, None}
    eager = [each for each in record["steps"] if each["steps"] == "eager"]
    assert {each["rows"] for each in eager} == set(CPU_SIZES.rows)
    assert all(each["step_ms"] > each["roofline_step_ms"] > 0 for each in record["steps"])
    baseline, lockstep = (record["schedules"][f"tiny {name} eager"] for name in ("alone", "lockstep"))
    assert baseline["scaled"] and baseline["ratio"] == 1 and baseline["seconds"] > baseline["measured_s"]
    assert not lockstep["scaled"] and lockstep["behind"] == lockstep["seconds"] / lockstep["roofline_s"]
    assert lockstep["ratio"] == baseline["seconds"] / lockstep["seconds"]
    assert done.stdout.rstrip().endswith(report.markdown(record))
    monkeypatch.setattr(sys, "argv", ["gpu", "--table", str(out)])
    assert command.main() == 0 and capsys.readouterr().out == report.markdown(record) + "\n"


def test_a_failed_test_is_recorded_and_the_others_run(tmp_path, monkeypatch):
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--device')\n")
    (tmp_path / "test_two.py").write_text("def test_a():\n    assert 1 == 2, 'it is wrong'\ndef test_b():\n    pass\n")
    monkeypatch.setattr(command, "TESTS", tmp_path)
    results = report.Results()
    assert not command.run_tests("cpu", results, words=None)
    assert [(each["name"], each["passed"]) for each in results.outcomes] == [("test_a", False), ("test_b", True)]
    assert "it is wrong" in results.outcomes[0]["detail"] and "assert 1 == 2" in results.tracebacks["test_a"]


def test_a_measurement_that_crashes_does_not_stop_the_others(lab, monkeypatch, capsys):
    def crash(lab, results):
        raise RuntimeError("what broke\nboilerplate")

    monkeypatch.setattr(command, "measurements", lambda lab: [("broken", crash), ("fine", lambda *_: "good")])
    results = report.Results()
    assert not command.run_measurements(lab, results, words=None)
    assert [(each["passed"], each["detail"]) for each in results.outcomes] == [
        (False, "RuntimeError: what broke"),
        (True, "good"),
    ]
    assert "in crash" in results.tracebacks["broken"] and "FAILED" in capsys.readouterr().out


def test_cudnn_attention_is_allowed_inside_a_call_only(lab):
    bench, allowed = lab.bench("tiny", torch.float32), []
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with cudnn_attention(bench.model, True):
            hook = bench.model.register_forward_hook(lambda *_: allowed.append(torch.backends.cuda.cudnn_sdp_enabled()))
            bench.engine(tokens=1).generate(Workload(1, 1, (96, 64)).begin())
            hook.remove()
        assert (*allowed, torch.backends.cuda.cudnn_sdp_enabled()) == (True, False)
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


class TestTestsFail:
    """Each test for GPUs fails if what it tests is broken."""

    @pytest.mark.slow
    def test_if_padding_is_not_masked(self, lab, record_property):
        def unmask(model, args, inputs):
            if (mask := inputs.get("attention_mask")) is not None:
                mask.fill_(1)

        expected = test_replies.alone_in_float32(lab)
        hook = lab.bench("tiny", torch.float32).model.register_forward_pre_hook(unmask, with_kwargs=True)
        try:
            with pytest.raises(AssertionError, match="batch"):
                test_replies.test_float32_replies_are_equal_in_batches_alone_and_with_reuse(
                    lab, expected, "eager", record_property
                )
        finally:
            hook.remove()

    def test_if_masked_rows_are_nan(self, lab, monkeypatch, record_property):
        def attend(query, key, value, attn_mask):
            allowed = attn_mask if attn_mask.dtype == torch.bool else attn_mask > -1
            scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf)
            return scores.softmax(-1) @ value

        monkeypatch.setattr(test_replies, "scaled_dot_product_attention", attend)
        with pytest.raises(AssertionError, match="NaN"):
            test_replies.test_fully_masked_rows_are_finite_and_the_others_correct(lab, record_property)
