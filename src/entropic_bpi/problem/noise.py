r"""Known mechanics, unknown noise: one law for many state-action pairs.

**Declared.** For every state-action pair a law :math:`g` and, for every label :math:`w` of that law, an outcome (next state,
reward). **Assumed.** At every visit the label is drawn from :math:`q_g`, independently of everything before. :math:`q_g` is
unknown.

**Partitions.** Labels with the same outcome at a pair form one class of the partition :math:`\Pi(s,a)`. There is one *ball*
for each distinct :math:`(g,\Pi)`: a confidence set for the distribution of the class. A visit counts in **every** ball of
its law whose partition is that of the pair or coarser. Whether it counts depends on the pair and never on the outcome. With
lost sales, for example, a demand below the stock is observed exactly; counting it in a finer ball for that reason would be a
selection by the outcome. If the label of every visit is observed, for every pair and outcome, each visit counts in
every ball of its law.

**Event.** With :math:`N_r` the counts of ball :math:`r` and :math:`P` the number of balls with several classes that matter,
with probability :math:`1-\delta`, for all balls and at all times :math:`n_r\mathrm{KL}(\hat p_r,q_r)\le\log(P/\delta)+
R_{mix}(N_r)`. See the page "Known mechanics, unknown noise" of the documentation for the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from entropic_bpi.errors import InvalidProblemError
from entropic_bpi.model.mdp import FiniteMDP
from entropic_bpi.model.parts.mechanics import Mechanics, OutcomeTable, Partitioned, read_labels, read_outcomes
from entropic_bpi.problem.rows import Slots, index_by_name, slots_of
from entropic_bpi.tools.text import shown

if TYPE_CHECKING:
    from entropic_bpi.problem.counts import CountArrays

MODEL = "model"


class Noise:
    """The declaration that the outcome is a known function of state, action and a random label.

    Parameters
    ----------
    labels : sequence, or dict of sequences
        The possible labels, such as demands, slips or wear. If there are several laws, a dict from the name of each law to
        its labels.
    outcome : function ``(state, action, label)`` or dict
        Returns the next state or ``(next state, reward)``; :data:`entropic_bpi.END` is the end of the episode. A value that
        is itself a state is the next state. If it returns no rewards, the rewards of an environment are learned.
    law : function ``(state, action)`` or dict, optional
        The name of the law of the labels in a state and action; required if there are several laws.
    observed : function ``(info, state, action, next_state, reward)``, optional
        Returns the label of a visit, if the environment shows it: for example, a demand that ``step`` returns in ``info``;
        ``next_state`` is :data:`entropic_bpi.END` at the end of an episode. Every visit then counts for every state-action
        pair with the same law, also if several labels have the same outcome. The label must belong to the law and have the
        observed outcome. Only for environments.

    Notes
    -----
    States and actions are elements of the environment's spaces, labels of a log, or numbers of a
    :class:`entropic_bpi.FiniteMDP`. The assumption is that the label is drawn independently at every visit, from the same
    distribution for all state-action pairs, steps and episodes with the same law. Its probabilities are learned.

    Examples
    --------
    The agent in FrozenLake slips to the left, straight or to the right with one unknown law. The outcome of a label includes
    the reward, and END at the holes and the goal:

    >>> import entropic_bpi as eb
    >>> lake = "SFFFFHFHFFFHHFFG"
    >>> def slip(state, action, label):
    ...     row, column = divmod(state, 4)
    ...     side = (action + label) % 4
    ...     row = min(max(row + (side == 1) - (side == 3), 0), 3)
    ...     column = min(max(column + (side == 2) - (side == 0), 0), 3)
    ...     following = 4 * row + column
    ...     return eb.END if lake[following] in "HG" else following, float(lake[following] == "G")
    >>> noise = eb.Noise([-1, 0, 1], slip)
    >>> settings = {"horizon": 20, "beta": -1.0, "eps": 0.3, "delta": 0.1, "start": 0, "seed": 1}
    >>> result = eb.identify("FrozenLake-v1", noise=noise, **settings)
    >>> result.stopped, result.episodes < 500, eb.verify(result.certificate).ok
    (True, True, True)
    """

    def __init__(self, labels: Any, outcome: Any, *, law: Any = None, observed: Any = None) -> None:
        self.laws = read_labels(labels)
        for name, value in (("outcome", outcome), *([] if law is None else [("law", law)])):
            if not callable(value) and not isinstance(value, Mapping):
                raise InvalidProblemError(f"{name} must be a function or a dict, got {shown(value)}")
        if observed is not None and not callable(observed):
            raise InvalidProblemError(
                f"observed must be a function (info, state, action, next_state, reward), got {shown(observed)}"
            )
        self.outcome, self.law, self.observed = outcome, law, observed

    def read(self, states: Iterable[Any], actions: Iterable[Any], number: Callable[[Any], int]) -> OutcomeTable:
        """Return the outcomes of all states, actions and labels, with states by number.

        Parameters
        ----------
        states, actions : iterable
            In the order of their numbers.
        number : function
            Returns the number of a state, and a negative number for any other object.

        Returns
        -------
        OutcomeTable
            The table.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> noise = eb.Noise([0, 1], lambda state, action, label: label)
        >>> noise.read([0, 1], [0], lambda state: state).following.tolist()
        [[0, 1], [0, 1]]
        """
        return read_outcomes(states, actions, self.laws, self.outcome, self.law, number)

    def as_table(self) -> dict[str, Any]:
        """Return the noise as tables, for a problem file.

        Returns
        -------
        dict
            ``labels``, ``outcome`` and, if there are several laws, ``law``.

        Raises
        ------
        InvalidProblemError
            If the outcome or the law is a function.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> eb.Noise(["a"], {(0, 0, "a"): 0}).as_table()
        {'labels': [('', ['a'])], 'outcome': {(0, 0, 'a'): 0}}
        """
        if any(map(callable, (self.outcome, self.law, self.observed))):
            raise InvalidProblemError(
                "a problem file cannot contain a function: declare noise by tables {(state, action, label): outcome} and, "
                "if there are several laws, {(state, action): law}"
            )
        tables = {"labels": [*self.laws.items()], "outcome": self.outcome}
        return tables if self.law is None else {**tables, "law": self.law}

    def __repr__(self) -> str:
        sizes = (f"{name}: {len(labels)}".removeprefix(": ") for name, labels in self.laws.items())
        return f"Noise({', '.join(sizes)} labels)"


def noise_of_model(noise: Any, mdp: FiniteMDP) -> Partitioned:
    """Return the declared mechanics of a model; its rewards are known and are not part of them."""
    if not mdp.stationary:
        raise InvalidProblemError("noise is for models whose transitions are the same at every step")
    if isinstance(noise, Noise):
        if noise.observed is not None:
            raise InvalidProblemError("observed= of noise needs the info of an environment; a FiniteMDP has none")
        table = noise.read(range(mdp.n_states), range(mdp.n_actions), index_by_name(mdp.state_names))
        if not np.isnan(table.rewards).all():
            raise InvalidProblemError("outcomes of noise= for a FiniteMDP are only next states: its rewards are known")
    elif mdp.mechanics is None:
        raise InvalidProblemError("noise='model' is for models that were built by FiniteMDP.from_noise")
    else:
        table = mdp.mechanics
    return table._replace(rewards=np.full(table.following.shape, np.nan)).partition()


class Balls:
    """The confidence ball that each state-action pair uses, and the balls in which its visits count.

    A *cell* is a class of a ball. A visit of a pair "feeds" a ball if it counts there.

    Attributes
    ----------
    of_pair : int array ``(S * A,)``
        The ball of each pair; partitions with one class need no ball, but also have a number.
    law : int array ``(balls,)``
        The law of each ball.
    refines : bool array ``(balls, balls)``
        ``refines[b, r]``: visits of ball ``b`` feed ball ``r``, since every class of ``b`` is a subset of a class of ``r``.
    slot_of_label : int array ``(S * A, largest number of labels)``
        The slot of the pair that each label leads to, -1 after the last label; 0 for all labels if there is one slot.
    label_of_slot : int array ``(S * A, largest number of slots)``
        The first label of each slot, -1 after the last slot.
    """

    def __init__(self, mechanics: Mechanics, slots: Slots) -> None:
        sizes = np.array([len(labels) for labels in mechanics.labels])
        pairs, most = len(mechanics.law), sizes.max()
        filled = np.arange(most) < sizes[mechanics.law][:, None]
        self.slot_of_label = np.full((pairs, most), -1)
        self.slot_of_label[filled] = mechanics.classes
        # A class is identified by its first label, independently of the order of the slots.
        first = (self.slot_of_label[:, :, None] == self.slot_of_label[:, None]).argmax(axis=2)
        kind_of_pair = np.column_stack([mechanics.law, np.where(filled, first, -1)])
        kinds, self.of_pair = np.unique(kind_of_pair, axis=0, return_inverse=True)
        self.of_pair = self.of_pair.ravel()
        self.law, first_of = kinds[:, 0], kinds[:, 1:]
        one_class = np.all(first_of <= 0, axis=1)
        # b refines r if, in r, each label is in the same class as the first label of its class in b.
        self.refines = np.array(
            [(first_of[:, np.maximum(mine, 0)] == first_of)[:, mine >= 0].all(axis=1) for mine in first_of]
        )
        self.refines &= self.law[:, None] == self.law
        self.refines |= one_class  # a single outcome is certain under every law
        self.slot_of_label[one_class[self.of_pair]] = 0
        self.label_of_slot = np.full((pairs, slots.used[:pairs].max()), -1)
        for label in range(most - 1, -1, -1):
            rows = np.flatnonzero(filled[:, label])
            self.label_of_slot[rows, self.slot_of_label[rows, label]] = label
        self._number_cells(first_of, one_class, slots)
        several, drawn = np.nonzero((first_of >= 0) & ~one_class[:, None])
        self.drawn = (np.cumsum(sizes) - sizes)[self.law[several]] + drawn  # positions among the labels of all laws
        self.cell_of_drawn = self._number[several, first_of[several, drawn]]

    def _number_cells(self, first_of: np.ndarray, one_class: np.ndarray, slots: Slots) -> None:
        """Number the cells of all balls, and compute the cells that each cell feeds and the cell of each slot."""
        is_cell = (first_of == np.arange(first_of.shape[1])) & ~one_class[:, None]
        self._number = number = np.where(is_cell, is_cell.ravel().cumsum().reshape(is_cell.shape) - 1, -1)
        self.ball_of_cell, label = np.nonzero(is_cell)
        self.cells = len(label)
        coarser_than = [np.flatnonzero(feeds & ~one_class) for feeds in self.refines]
        fed = [(cell, coarser) for cell, ball in enumerate(self.ball_of_cell) for coarser in coarser_than[ball]]
        self.giver, coarser = np.array(fed, dtype=np.int64).reshape(-1, 2).T
        self.taker = number[coarser, first_of[coarser, label[self.giver]]]
        self.rows = np.flatnonzero(~one_class[self.of_pair])
        self.row, at = slots_of(slots, self.rows)
        self.offset = at - slots.begin[self.row]
        self.cell = number[self.of_pair[self.row], self.label_of_slot[self.row, self.offset]]

    def classes_of(self, pair: int, slot: int) -> Iterator[tuple[int, int]]:
        """Yield the balls that a visit of ``pair`` with the outcome ``slot`` feeds, and the number of its cell in each."""
        first = np.searchsorted(self.row, pair)
        if first < len(self.row) and self.row[first] == pair:
            begin, end = np.searchsorted(self.giver, [self.cell[first + slot], self.cell[first + slot] + 1])
            for taker in self.taker[begin:end].tolist():
                yield int(self.ball_of_cell[taker]), taker

    def arrays(self, arrays: CountArrays, labels: np.ndarray | None = None) -> CountArrays:
        """Return a copy of the counts in which every row has the counts of its ball.

        If ``labels`` are observed, they are counted instead of outcomes.
        """
        at = arrays.begin[self.row] + self.offset
        own = np.bincount(self.cell, arrays.tally[at], self.cells)
        fed = np.bincount(self.taker, own[self.giver], self.cells).astype(np.int64)
        if labels is not None and labels.size:
            fed = np.bincount(self.cell_of_drawn, labels[self.drawn], self.cells).astype(np.int64)
        tally, visits = arrays.tally.copy(), arrays.visits.copy()
        tally[at] = fed[self.cell]
        visits[self.rows] = np.bincount(self.ball_of_cell, fed, len(self.law)).astype(np.int64)[self.of_pair[self.rows]]
        return arrays._replace(tally=tally, visits=visits)
