"""Questions, answer kinds, benchmarks, and scans on disk."""

if __name__ == "data":  # through the link at the top of a checkout
    from roomscout.base.linked import share

    share(__name__)
