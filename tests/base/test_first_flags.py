"""Flags of the field's first scripts: what a parser says to whoever types one."""

import pytest

from roomscout.analysis.compare.command import main as compare
from roomscout.base.verbs import FIRST_FLAGS, written_today
from roomscout.edge.flags import flags_parser
from roomscout.training.sft import main as sft


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--verbose", "today it is --log-level debug"),
        ("--use_vllm", "today it is --engine vllm"),
        ("--node_rank=1", "today it is --shard I/N"),
        ("--max_model_len=8192", "today it is planned from --steps and --max-new-tokens"),
        ("--tp=2", "today it is --tensor-parallel-size"),
        ("--model_path=a", "today it is --model"),
        ("--output=a", "today it is --log-root"),
        ("--max_new_tokens=8", "it is written --max-new-tokens"),
        ("--tensor_parallel_size=2", "it is written --tensor-parallel-size"),
        ("--stepz", "did you mean --steps?"),
    ],
)
def test_a_run_says_what_a_first_flag_is_called_today(typed: str, words: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        flags_parser().parse_args([typed])
    assert f"there is no flag {typed.partition('=')[0]}; {words}" in capsys.readouterr().err


def test_every_first_flag_has_a_name_of_today_in_a_run():
    flags = flags_parser()._option_string_actions.keys()
    assert all(written_today(typed, flags) for typed in FIRST_FLAGS) and not FIRST_FLAGS.keys() & flags


def test_a_verb_names_only_flags_that_it_has_and_its_own_first(capsys: pytest.CaptureFixture[str]):
    for main, typed, words in (
        (compare, ["a", "b", "--verbose"], "--help lists the flags"),
        (compare, ["a", "b", "--output=x"], "did you mean --out?"),
        (sft, ["a", "--model=b", "--output=c", "--output_dir=d"], "did you mean --output?"),
    ):
        with pytest.raises(SystemExit):
            main(typed)
        assert capsys.readouterr().err.rstrip().endswith(words)
