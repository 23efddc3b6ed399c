"""Scenes, camera poses, renderers, moves and the choice of the first view."""
