"""Questions, answer kinds, benchmarks, and scans on disk."""
