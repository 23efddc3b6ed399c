"""Compares runs over the same questions: `roomscout compare` and `roomscout leaderboard`."""
