#!/usr/bin/env python3
"""Let a vision-language model explore 3D scans of rooms and answer spatial questions; --help lists the flags."""

import sys

from roomscout.command.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
