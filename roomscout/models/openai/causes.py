"""What the words of servers say of causes that the user can change, and the advice for each."""

import re
from dataclasses import dataclass

READ = 4000
"""Characters of a server's words that are searched."""
REFUSED = (400, 404, 405, 415, 422, 500, 501)
"""Statuses of requests that are refused for what they ask; llama.cpp and some routers say 500."""
OUT_OF_CREDIT = (
    "has no quota or credit left for this API key ({status}: {said}): add credit to the account, or name another key "
    "with {api_key_env}, then {retry}"
)
TOO_LONG = (
    "finds this conversation too long ({status}: {said}): give the server a longer context, or run with a smaller "
    "{image_size}, fewer {steps} or a lower {max_new_tokens}, or show fewer views at a time with {keep_views}"
)
NO_MODEL = (
    "does not have {model_name} ({status}: {said}): give the name under which the server has it with {model}, or "
    "correct {base_url}, which usually ends in /v1"
)


@dataclass(frozen=True)
class Cause:
    """The statuses and the words (regular expressions, in any case) of one cause, and the template of its advice.

    Words that match `unless` have another cause.
    """

    statuses: tuple[int, ...]
    advice: str
    words: tuple[str, ...]
    unless: str = r"(?!)"

    def is_in(self, text: str) -> bool:
        """Whether a text names this cause."""
        found = re.search("|".join(self.words), text, re.IGNORECASE | re.DOTALL)
        return found is not None and re.search(self.unless, text, re.IGNORECASE) is None


CAUSES = (
    Cause(
        (400, 401, 402, 403, 429),
        OUT_OF_CREDIT,
        (
            r"insufficient[ _](quota|balance|credit|fund)",
            r"exceeded_current_quota",
            r"billing_(hard|not)",
            r"arrearage|good standing",
            r"AccountOverdue|overdue[ -]payment",
            r"balance is (too low|insufficient|not enough)",
            r"out of (credit|fund|balance)|not enough (credits|balance)",
            r"(spend|spending|total|credit|monthly)( usage)? limit (exceeded|reached)|key limit exceeded",
            r"payment required",
            r"欠费|余额不足|额度(已|不足)|充值",
        ),
    ),
    Cause(
        (400, 402, 403, 429),
        OUT_OF_CREDIT,
        (
            r"plan and billing",
            r"exceeded your current quota",
            r"\b(credits?|balance|funds|trial|tier)\b.{0,40}(exhausted|depleted|used up|expired)|FreeTierOnly",
        ),
        unless=r"retry (in|after)|retryDelay|per[ _-]?(minute|day|hour|second)|rate limit",  # Google's rate limits
    ),
    Cause(
        REFUSED,
        "wants another setting for its thinking ({status}: {said}): give it with {extra_body}, such as "
        "'{{\"enable_thinking\": false}}'",
        (r"enable_thinking", r"thinking_budget", r"reasoning_effort", r"thinking.{0,40}non-?stream"),
    ),
    Cause(
        REFUSED,
        "answers only as a stream ({status}: {said}): choose another {model} or server, since replies are read whole",
        (
            r"only supports? (the )?stream",
            r"enable the stream parameter",
            r"stream[\"'` ]*(=|:|to|must be|should be|is)[\"'` ]*true",
            r"non-?stream\w* .{0,40}not (supported|allowed)",
            r"only available in streaming|requires? streaming|streaming is required",
            r"[仅只]支持流式",
        ),
    ),
    Cause(
        REFUSED,
        "does not take a system message ({status}: {said}): add {system_role=False}, which puts it at the beginning of "
        "the first user message",
        (
            r"system[ _\"'`]*(role|message|prompt|instruction)s?\b.{0,40}"
            r"(not|n't|un)[ _-]?(be )?(supported?|allowed|enabled|permitted)",
            r"not (support|allow).{0,40}\bsystem\b",
            r"roles? must alternate|alternate user/assistant",
            r"only user\b.{0,40} roles?\b",
            r"developer instruction is not enabled",
            r"(unexpected|unknown|invalid|unsupported) (role|value).{0,20}system",
            r"\bsystem\b[\"'`]* is not (one of|a valid)",
            r"不支持.{0,20}system|system.{0,20}不支持",
        ),
    ),
    Cause(
        REFUSED,
        "takes fewer images in a conversation ({status}: {said}): raise its limit (vLLM: --limit-mm-per-prompt), or "
        "run with {fewer_images}",
        (
            r"at most \d+ (image|multimodal)",
            r"too many (image|media)|multiple images|more than (one|\d+) image",
            r"limit[-_]mm[-_]per[-_]prompt",
            r"only (one|1|a single|\d+) image",
            r"(maximum|max|limit)\w*( number)?( of)?( \d+)? images?\b(?! (size|dimension))",
            r"number of images|images? count|\bup to \d+ images?|图片(数量|张数|个数)",
        ),
    ),
    Cause(
        REFUSED,
        "does not take images for {model_name} ({status}: {said}): name a vision-language model with {model}, or start "
        "the server with its image encoder (llama.cpp: --mmproj)",
        (
            r"not a multimodal",
            r"(not|n't) (support|accept|process|have).{0,40}(image|vision|multimodal)",
            r"(image|vision|multimodal)\w*( input| content)?s? (is|are) not (supported|enabled)",
            r"that support image input",
            r"unsupported content (part )?type|unknown variant `?image_url",
            r"only text content|content.{0,40}(must|should) be (a |of type )?(valid )?str",
            r"image_url.{0,20}only supported by|不支持.{0,10}(图片|图像|视觉|多模态)|(图片|图像).{0,10}不支持",
        ),
    ),
    Cause(
        (*REFUSED, 413),
        TOO_LONG,
        (
            r"context[ _-]?(length|size|window)|maximum context|context the overflows",
            r"max_model_len|max_seq_len|n_ctx|n_keep",
            r"(?<!took )\btoo long\b|(prompt|input|request|message|conversation)s?( is| are)? too large",
            r"longer than the|too many tokens|tokens.{0,40}must be <=",
            r"(input|prompt)[ _`]*(token|length).{0,80}(exceed|must|maximum|at most|longer|larger|<=)",
            r"range of input length",
            r"max_(completion_)?tokens[ `'\"]*(is|are|must|should|exceed|:)",
            r"exceed.{0,40}(number of tokens|token limit)|maximum (allowed )?(input|prompt|token)",
            r"(输入|上下文|prompt).{0,10}(超长|过长|超过|超出)",
        ),
    ),
    Cause(
        REFUSED,
        "does not take a view of this size ({status}: {said}): choose another {image_size}",
        (
            r"(image|height|width|pixel|resolution|dimension).{0,60}"
            r"(must|should|larger|smaller|at least|exceed|too (small|large|big))",
            r"too (small|large|big).{0,40}(image|pixel)",
        ),
    ),
    Cause(
        (400, 403, 422, 451),
        "does not reply because of its content filter ({status}: {said}): relax the filter, or choose another {model}",
        (
            r"content[ _-]?(filter|management|policy)",
            r"data_?inspection|inappropriate content|responsible ?ai|moderation|flagged",
            r"safety (system|filter|setting|reason)|敏感|违规|内容安全",
        ),
    ),
    Cause(
        (400, 422),
        "refuses the temperature ({status}: {said}): choose another {temperature}, or leave it out",
        (r"\btemperature\b",),
    ),
    Cause(
        (400, 422, 500),
        NO_MODEL,
        (
            r"model.{0,80}(not (found|exist|available|loaded|supported|valid)|n't exist|unknown|invalid)",
            r"(unknown|invalid|no such|nonexistent) model|not a valid model|model_not_found|模型.{0,10}不存在",
        ),
    ),
)


def cause_in(text: str, status: int) -> Cause | None:
    """The first cause that a server's words name; None if they name none, as in an error that may pass."""
    return next((each for each in CAUSES if status in each.statuses and each.is_in(text[:READ])), None)
