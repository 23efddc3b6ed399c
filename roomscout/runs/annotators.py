"""Which person answers what in a run of people (--policy human)."""

from collections.abc import Sequence

from roomscout.runs.records import EpisodeId


def annotator_of(episode: EpisodeId, annotators: Sequence[str], samples: int) -> str:
    """The person who answers an episode of a run with `samples` answers to each question.

    Episodes are dealt out in their order like cards: with as many samples as people, everybody answers each question
    once; with one sample, the questions are divided evenly.
    """
    return annotators[((episode.number - 1) * samples + episode.sample - 1) % len(annotators)]
