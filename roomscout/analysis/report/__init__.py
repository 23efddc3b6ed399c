"""Shows a run in a browser: its scores, plots, a table of all questions and a page for each, from disk alone."""
