"""`python -m roomscout`: the command, with all flags of the script."""

import sys

from roomscout.command.main import main

sys.exit(main(sys.argv[1:], console=True))
