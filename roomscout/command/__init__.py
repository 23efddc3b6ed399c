"""The command: settings as flags, verbs, and messages at the edge."""
