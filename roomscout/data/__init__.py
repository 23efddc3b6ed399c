"""Questions, scans on disk, procedural rooms and scoring."""
