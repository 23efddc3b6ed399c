"""`python -m roomscout`: the command, with all flags of the script."""

from roomscout.command.main import run_console_command

run_console_command()
