"""The environment of a question: pose, view and the effects of actions. No prompts, models or logs."""
