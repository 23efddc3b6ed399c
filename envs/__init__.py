"""A question's world: the camera's pose, its view, and the effect of an action. No prompts, models or logs."""
