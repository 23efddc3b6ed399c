"""Models through the transformers library: one `generate()` call replies to a whole batch of conversations."""
