"""Teach a small Qwen3-VL to explore: a teacher that knows the rooms, its conversations, and the training on them."""
