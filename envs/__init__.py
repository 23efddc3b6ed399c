"""A question's world: where its camera is, what it sees, and what an action does. No prompts, models or logs."""
