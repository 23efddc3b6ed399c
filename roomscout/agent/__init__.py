"""The evaluation loop: configuration, scheduling, turns and policies."""

if __name__ == "agent":  # through the link at the top of a checkout
    from roomscout.base.linked import share

    share(__name__)
