"""Benchmarks of the package, each a separate command."""
