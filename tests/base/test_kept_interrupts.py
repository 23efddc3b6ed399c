"""Tests that an interrupt is kept until somebody has acted on it."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated

import pytest
from losing_interrupts import LOSSES, in_del, send

from roomscout.base.interrupts import (
    INTERRUPTS,
    acted_on_interrupt,
    deferred_interrupts,
    ignored_interrupts,
    interrupts_first,
    raise_at_interrupts,
    raise_if_interrupted,
)
from roomscout.base.record import adapter_of

Loss = Callable[[signal.Signals], None]


def wait_for_ever() -> None:
    """Wait as for a thread, without a limit."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@pytest.fixture(autouse=True)
def _handled() -> Iterator[None]:
    raise_at_interrupts()
    yield
    acted_on_interrupt()


@pytest.mark.parametrize("how", INTERRUPTS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_lost_interrupt_is_raised_where_it_is_looked_at_and_again_in_any_wait(loss: Loss, how: signal.Signals):
    with suppress(Exception, KeyboardInterrupt):
        loss(how)
    with pytest.raises(KeyboardInterrupt):
        raise_if_interrupted()
    with pytest.raises(KeyboardInterrupt):
        wait_for_ever()
    acted_on_interrupt()
    raise_if_interrupted()


def test_an_interrupt_on_its_way_is_not_raised_again():
    def ended() -> None:
        try:
            send(signal.SIGINT)
        finally:
            time.sleep(0.6)  # as closing takes
            send(signal.SIGTERM)  # as job schedulers send a second one
            done.append(True)

    done: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        ended()
    assert done
    acted_on_interrupt()
    time.sleep(0.3)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_after_a_lost_interrupt_is_one():
    with pytest.raises(ZeroDivisionError), interrupts_first():
        _ = 1 / 0
    in_del(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interrupts_first():
        _ = 1 / 0


@pytest.mark.parametrize("fails", [False, True])
def test_a_deferred_interrupt_comes_at_the_end_of_its_block_also_of_one_that_fails(fails: bool):
    @deferred_interrupts()
    def block() -> None:
        send(signal.SIGTERM)
        done.append(True)
        if fails:
            raise ImportError("half of a module")

    done: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        block()
    assert done
    with pytest.raises(KeyboardInterrupt):
        raise_if_interrupted()
    with ignored_interrupts():
        send(signal.SIGTERM)
    raise_if_interrupted()


def test_a_schema_is_whole_although_an_interrupt_comes_while_it_is_built():
    """Pydantic-core calls Python while it builds one, and drops what that raises, or makes a SchemaError of it."""

    class Interrupting:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: object, handler: Callable[[object], object]) -> object:
            if not sent:
                sent.append(True)
                send(signal.SIGINT)
            return handler(source)

    sent: list[bool] = []
    number = Annotated[int, Interrupting]
    with pytest.raises(KeyboardInterrupt):
        adapter_of(number)
    acted_on_interrupt()
    assert adapter_of(number).validate_python("3") == 3
    raise_if_interrupted()
