"""Serves the report of a run on this computer while the run goes on."""
