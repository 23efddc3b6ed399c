"""What is asked and where it happens: questions, scans on disk, procedural rooms and scoring."""
