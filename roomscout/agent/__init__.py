"""The evaluation loop: configuration, scheduling, turns and policies."""
