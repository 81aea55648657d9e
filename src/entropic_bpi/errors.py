"""The errors that the library raises on bad input: one family, each also a ``ValueError``."""

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
    """A question about a model is ill-posed: a bad β, ε, δ, policy, option or name; or a source contradicts what is assumed.

    ``counts`` has what a run had played when it ended in this error, the episodes of the failed batch excepted; None if
    nothing was played. It is there to be looked at: a claim from it would ignore what ended the run.

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
    """A certificate file cannot be read or is not one of ours.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> try:
    ...     eb.Certificate.load("no-such-file.json")
    ... except eb.CertificateError as error:
    ...     print(error)
    no such file: no-such-file.json
    """
