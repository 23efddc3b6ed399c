"""Scores of answers: summaries, intervals over scenes, samples, baselines."""
