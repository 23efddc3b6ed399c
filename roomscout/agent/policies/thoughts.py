"""Finds what a reply says outside the thoughts of models that reason before they reply."""

import re
from bisect import bisect_right
from collections.abc import Iterable

_NAMES = "(?:seed:|longcat_)?think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad"
_TAG = re.compile(
    rf"""
    (?P<closing>
        </(?:{_NAMES})\s*> | \[/THINK\] | ◁/think▷ | <\|END_THINKING\|> | <\|end_of_thought\|> | <unused95>
        | <\|?channel\|?>\s*(?:final|commentary)\b | <channel\|> | assistantfinal | assistantcommentary
    )
    | (?P<opening>
        <(?:{_NAMES})(?:\s[^<>/]*)?> | \[THINK\] | ◁think▷ | <\|START_THINKING\|> | <\|begin_of_thought\|> | <unused94>
        | <\|?channel\|?>\s*(?:analysis|thought)\b | \A\s*analysis(?=(?-i:[A-Z]))
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What opens and closes a thought: <think> of DeepSeek, Qwen, GLM and many others and its variants, [THINK] of
Magistral, the diamonds of Kimi, the tokens of Command A, OpenThinker and MedGemma, and the channels of Gemma and
gpt-oss, also without their special tokens, which some servers leave out."""


def has_tags(text: str) -> bool:
    """Whether a text has anything that opens or closes a thought."""
    return _TAG.search(text) is not None


def outside_thoughts(text: str, quoting: Iterable[tuple[int, int]] = ()) -> tuple[str, bool]:
    """A reply without its thoughts, and whether it ends inside one.

    Tags between the start and the end of each of `quoting`, in order, are part of what is quoted there.

    All before a closing tag is a thought if no tag opens it: many chat templates end with the opening tag. A tag that
    is not closed makes all behind it a thought. Tags do not nest: models that mention one while they think still close
    the thought once.
    """
    said, start, inside = list[str](), 0, False
    quoted = [(0, 0), *quoting]
    for tag in _TAG.finditer(text):
        if tag.start() < quoted[bisect_right(quoted, tag.start(), key=lambda span: span[0]) - 1][1]:
            continue
        if tag["opening"] is not None:
            if not inside:
                said.append(text[start : tag.start()])
            inside = True
        else:
            said = said if inside else []
            inside, start = False, tag.end()
    return "".join(said if inside else [*said, text[start:]]), inside
