"""What every package may import: text from outside, files, interrupts, loading by name, new processes."""
