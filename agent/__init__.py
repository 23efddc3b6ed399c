"""The loop: configuration, schedule, turns, and the policies that decide."""
