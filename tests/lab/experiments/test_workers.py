"""The pool of processes: results, errors and deaths reach the caller."""

from __future__ import annotations

import multiprocessing
import os

import pytest

import entropic_bpi as eb
from entropic_bpi.lab.experiments.workers import compute


def no_death():
    raise AssertionError("a worker died")


def square(number):
    return os.getpid(), number**2


@pytest.mark.parametrize("workers", [0, 2])
def test_every_task_gets_its_result(workers):
    found = list(compute(square, range(5), workers, died=no_death))
    assert sorted((task, result[1]) for task, result in found) == [(n, n**2) for n in range(5)]
    others = {result[0] for _, result in found} - {os.getpid()}
    assert len(others) in ((0,) if workers == 0 else (1, 2))


class Unsendable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def refuse(number):
    raise eb.InvalidProblemError(f"not {number}") if number else Unsendable(1, 2)


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [(3, eb.InvalidProblemError, "not 3"), (0, eb.EntropicBPIError, "Unsendable: 1 and 2")],
)
def test_an_error_of_a_task_is_raised_and_ends_the_workers(number, error, message):
    with pytest.raises(error, match=message):
        list(compute(refuse, [number], 1, died=no_death))
    assert not multiprocessing.active_children()


def die_unless_even(number):
    if number % 2:
        os._exit(number)
    return number


def test_a_task_that_kills_its_workers_is_given_up_and_the_others_are_done():
    found = dict(compute(die_unless_even, range(4), 2, died=lambda: None))
    assert found == {0: 0, 1: None, 2: 2, 3: None}


def test_closing_the_generator_ends_the_workers():
    running = compute(square, range(100), 2, died=no_death)
    next(running)
    assert multiprocessing.active_children()
    running.close()
    assert not multiprocessing.active_children()
