"""Models through the transformers library, in lockstep batches."""
