"""Replays one question in 3D: the scan, the camera's path, its views and the conversation."""
