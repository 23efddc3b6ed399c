"""How the explorer in roomscout/checkpoints was trained, in a checkout: `python -m explorer`."""
