"""Runs a whole comparison through the main command, and tabulates it: `roomscout study`."""
