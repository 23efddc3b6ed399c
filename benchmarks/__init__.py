"""Measurements of the package, each a command of its own."""
