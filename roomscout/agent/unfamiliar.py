"""Warns of questions unlike those that a model was trained on, which it answers all the same."""

import logging
from collections.abc import Sequence
from textwrap import shorten

from roomscout.agent.config import ModelSettings
from roomscout.agent.policies import Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.base.text import escaped
from roomscout.data.questions import Question
from roomscout.models.checkpoint_files import checkpoint_folder
from roomscout.models.trained_questions import TRAINED_QUESTIONS_FILE, trained_questions_of

log = logging.getLogger(__name__)

SHOWN_QUESTIONS = 3
SHOWN_CHARACTERS = 100


def unfamiliar_questions(policy: Policy | None, model: ModelSettings, questions: Sequence[Question]) -> list[str]:
    """A warning, as lines of text, if questions are unlike those that the model was trained on; else no lines.

    The model is the one of `policy`, or without a policy the one that `model` names. No lines if its checkpoint does
    not state its questions, or if no model decides. Raises ModelError if the file that states them is damaged.
    """
    if not (model.asks_model if policy is None else isinstance(policy, ModelPolicy)):
        return []
    name = model.model if policy is None else policy.name
    trained = trained_questions_of(name)
    if trained is None:
        return []
    reasons = {each.question: trained.why_unfamiliar(each.question, each.options) for each in questions}
    unlike = {text: reason for text, reason in reasons.items() if reason is not None}
    if not unlike:
        return []
    number, few = sum(each.question in unlike for each in questions), list(unlike.items())[:SHOWN_QUESTIONS]
    if len(questions) == 1:
        found, their = "The question is", "its answer"
    else:
        found = f"{number} of {len(questions)} questions {'is' if number == 1 else 'are'}"
        their = "its answer" if number == 1 else "their answers"
    return [
        f"{found} unlike those that {name} was trained on, so do not rely on {their}:",
        *(f'"{escaped(shorten(text, SHOWN_CHARACTERS))}": {escaped(reason)}' for text, reason in few),
        *([f"and {len(unlike) - len(few)} more"] if len(unlike) > len(few) else []),
        f"Known wordings and words: {checkpoint_folder(name) / TRAINED_QUESTIONS_FILE}",
    ]


def log_unfamiliar(warning: Sequence[str]) -> None:
    """Log the lines of a warning as one record, if there are any."""
    if warning:
        log.warning("\n  ".join(["%s"] * len(warning)), *warning)
