"""Trains a small Qwen3-VL to explore by imitating a teacher that knows the rooms."""
