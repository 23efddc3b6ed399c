"""The evaluation loop: scheduling, turns and policies."""

MAX_BATCHED_TURNS = 4  # the number of turns that a run takes in lockstep batches, unless it is told otherwise

if __name__ == "agent":  # through the link at the top of a checkout
    from roomscout.base.linked import share

    share(__name__)
