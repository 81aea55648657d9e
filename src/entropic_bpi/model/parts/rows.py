"""The transitions and rewards of a model step by step, however it is held."""

from dataclasses import replace

import numpy as np

from entropic_bpi.model.parts.arrays import SparseTransitions, frozen, stand_ins
from entropic_bpi.model.parts.reading import ModelArrays


class ModelRows(ModelArrays):
    """What :class:`~entropic_bpi.FiniteMDP` knows of its transitions and rewards."""

    @property
    def is_sparse(self) -> bool:
        return self._kernel is None

    @property
    def next_state_rewards(self) -> bool:
        """Whether rewards are given as a function of the next state as well."""
        return self._rewards is None or self._rewards.ndim == 4

    @property
    def _payoffs(self) -> np.ndarray:
        """The rewards ``(1 or H, S, A)``; those of the entries, ``(1 or H, entries)``, if the next state matters."""
        payoffs = self.rows.rewards if self.next_state_rewards else self._rewards
        assert payoffs is not None
        return payoffs

    def step_rows(self, h: int) -> SparseTransitions:
        """Return the ``S * A`` rows of a step.

        Parameters
        ----------
        h : int
            The step, from 0.

        Returns
        -------
        SparseTransitions
            Its ``rewards`` have one axis, aligned with the entries.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> len(bridge.step_rows(0).indptr)
        17
        """
        rows, pairs = self.rows, self.n_states * self.n_actions
        rewards = None if rows.rewards is None else rows.rewards[h if len(rows.rewards) > 1 else 0]
        rows = SparseTransitions(rows.indptr, rows.indices, rows.probabilities, rewards)
        if self.stationary:
            return rows
        indptr = rows.indptr[h * pairs : (h + 1) * pairs + 1]
        return rows._take(slice(indptr[0], indptr[-1]), frozen(indptr - indptr[0]))

    def step_kernel(self, h: int) -> np.ndarray | None:
        """Return the dense transition matrix of a step.

        Parameters
        ----------
        h : int
            The step, from 0.

        Returns
        -------
        float array ``(S * A, S)`` or None
            None for a sparse model.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> bridge.step_kernel(0).shape
        (16, 8)
        """
        if self._kernel is None:
            return None
        return self._kernel[0 if self.stationary else h].reshape(-1, self.n_states)

    def step_rewards(self, h: int) -> np.ndarray:
        """Return the rewards of a step, for models whose rewards do not depend on the next state.

        Parameters
        ----------
        h : int
            The step, from 0.

        Returns
        -------
        float array ``(S, A)``
            The rewards.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> bridge.step_rewards(0).shape
        (8, 2)
        """
        assert self._rewards is not None
        assert self._rewards.ndim == 3
        return self._rewards[h if len(self._rewards) > 1 else 0]

    def policy_rows(self, policy: np.ndarray, h: int) -> SparseTransitions:
        """Return the rows of a step that a policy plays, one per state, with the reward of every entry.

        Parameters
        ----------
        policy : int array ``(H, S)``
            The actions.
        h : int
            The step.

        Returns
        -------
        SparseTransitions
            The rows.

        Examples
        --------
        >>> import numpy as np, entropic_bpi as eb
        >>> eb.instances.risky_bridge(horizon=7).policy_rows(np.zeros((7, 8), int), 0).indptr.size
        9
        """
        return self._chosen_rows(h, np.arange(self.n_states) * self.n_actions + policy[h])

    def _chosen_rows(self, h: int, chosen: np.ndarray) -> SparseTransitions:
        rows = self.step_rows(h)._rows(chosen)
        if rows.rewards is not None:
            return rows
        return replace(rows, rewards=np.repeat(self.step_rewards(h).ravel()[chosen], np.diff(rows.indptr)))

    def replace_forbidden(self, policy: np.ndarray) -> np.ndarray:
        """Return a policy with each forbidden action replaced by the allowed one that it copies.

        Parameters
        ----------
        policy : int array ``(H, S)``
            The actions.

        Returns
        -------
        int array ``(H, S)``
            Allowed actions.

        Examples
        --------
        >>> import numpy as np, entropic_bpi as eb
        >>> mdp = eb.FiniteMDP(np.ones((1, 2, 1)), np.zeros((1, 2)), horizon=1, allowed=np.array([[False, True]]))
        >>> mdp.replace_forbidden(np.array([[0]])).tolist()
        [[1]]
        """
        if self._allowed is None:
            return policy
        table = np.broadcast_to(stand_ins(self._allowed), (self.horizon, self.n_states, self.n_actions))
        return np.take_along_axis(table, policy[..., None], axis=2)[..., 0]
