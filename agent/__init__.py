"""Who asks, looks, moves and answers: prompts, actions, question state, schedule, run log and models."""
