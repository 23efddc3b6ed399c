"""The edge: settings as people give them, completed and checked, and the plan of a run."""
