"""The verb `roomscout serve`."""

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from roomscout.analysis.serve.runs import site_of
from roomscout.analysis.verbs import add_run, chosen_run
from roomscout.base.interrupts import acted_on_interrupt
from roomscout.base.text import log_to_stream
from roomscout.base.verbs import Parser
from roomscout.base.web import ADDRESS, server_on

log = logging.getLogger(__name__)

DEFAULT_PORT = 8765


def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C or SIGTERM, then return 0. Raises RunError, or PortError if the port cannot be used."""
    parser = Parser(prog="roomscout serve")
    add_run(parser, "a run folder, a folder of run folders")
    parser.add_argument(
        "--port", metavar="N", type=_port, default=DEFAULT_PORT, help=f"0 for any free port ({DEFAULT_PORT})"
    )
    given = parser.parse_intermixed_args(arguments)
    log_to_stream(sys.stdout)
    try:
        folder = chosen_run(given).absolute()
        with (
            tempfile.TemporaryDirectory(prefix="roomscout_serve_") as drafts,
            server_on(given.port, site_of(folder, Path(drafts))) as server,
        ):
            log.info("Serving %s at http://%s:%d/ (Ctrl-C ends it)", folder, ADDRESS, server.server_port)
            server.serve_forever()
    except KeyboardInterrupt:
        acted_on_interrupt()
        log.info("Stopped serving; the run is not affected.")
    return 0


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: name one between 0 and 65535")
    return int(text)
