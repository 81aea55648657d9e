"""The errors that the library raises on bad input. They have one base class, and each is also a ``ValueError``."""

from typing import Any


class EntropicBPIError(Exception):
    """Base of every error that this library raises on purpose.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> issubclass(eb.InvalidModelError, eb.EntropicBPIError)
    True
    """


class InvalidModelError(EntropicBPIError, ValueError):
    """A model, or the file it should come from, is not a valid finite MDP.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> try:
    ...     eb.FiniteMDP([[[0.5]]], [[1.0]], horizon=1)
    ... except eb.InvalidModelError as error:
    ...     print(error)
    transitions[s=0, a=0] sums to 0.5, expected 1
    """


class InvalidProblemError(EntropicBPIError, ValueError):
    """An argument is invalid (β, ε, δ, policy, option, name), or a source of data contradicts an assumption.

    If a run raises this error, ``counts`` holds the episodes that it had played, without those of the failed batch; None if
    it had played none. They are for inspection only: a certificate from them would ignore the reason for the error.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> try:
    ...     eb.EVaR(2.0)
    ... except eb.InvalidProblemError as error:
    ...     print(error)
    alpha must lie strictly between 0 and 1, got 2.0
    """

    counts: Any = None


class CertificateError(EntropicBPIError, ValueError):
    """A certificate file cannot be read, or was not written by this library.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> try:
    ...     eb.Certificate.load("no-such-file.json")
    ... except eb.CertificateError as error:
    ...     print(error)
    no such file: no-such-file.json
    """
