"""``Monitor``: evidence of new episodes against a certificate, which may be looked at after every episode."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from entropic_bpi.certificate.certificate import Certificate
from entropic_bpi.certificate.contents import refusals
from entropic_bpi.certificate.policy import Policy
from entropic_bpi.errors import CertificateError, InvalidProblemError
from entropic_bpi.runs.monitoring.evidence import PERIODS, ReturnEvidence, RowEvidence
from entropic_bpi.sources.log import Log
from entropic_bpi.sources.logs.labels import names_for
from entropic_bpi.sources.spaces import label
from entropic_bpi.tools.checks import check_finite, check_flag, check_integer, check_path, check_probability
from entropic_bpi.tools.files import write_text_atomically
from entropic_bpi.tools.text import shown
from entropic_bpi.verification._file import parsed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = "entropic-bpi monitor"
# Episodes after which the periods begin again, behind the one that never does.
LENGTHS = (64, 512, 4096)
_SAVED = ("level", "episodes", "excluded", "_stride", "_ended", "_found", "_named")
_MOST_POINTS = 2048
_MOST_ROWS = 3


class Monitor:
    """Watch whether new episodes still agree with a certificate.

    A certificate is about the process that produced its data. The monitor takes later episodes, played by any policy, and
    computes an e-value against "every law of transitions lies where the claim assumes it, and the certified policy has at
    least the value ``lower``". If that is true, the e-value ever reaches 1/``level`` with probability at most ``level``,
    however often one looks. An outcome that the declarations exclude is an alarm at once.

    Parameters
    ----------
    certificate : Certificate, Identification or path
        A certificate of ``method="kl"``, the result of a run, a certificate's file, or a folder that a command wrote.
    level : float
        Bound on the probability of a false alarm.

    Attributes
    ----------
    certificate : Certificate
    level : float
    episodes : int
        Episodes observed.
    excluded : str or None
        The first outcome that the declarations exclude.
    history : list of (int, float)
        The logarithm of the e-value after some of the episodes.

    Examples
    --------
    >>> import entropic_bpi as eb
    >>> bridge = eb.instances.risky_bridge(horizon=5)
    >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
    >>> monitor = eb.Monitor(result.certificate)
    >>> monitored = monitor.watch(eb.as_gymnasium(bridge))
    >>> seen = eb.rollout(monitored, result, episodes=100, seed=2)
    >>> monitor.episodes, monitor.alarm
    (100, False)
    """

    def __init__(self, certificate: Any, *, level: float = 0.01) -> None:
        self.certificate = Policy.load(certificate)._labels
        self.level = check_probability("level", level)
        problem = self.certificate.problem
        if self.certificate.method != "kl":
            raise InvalidProblemError("a monitor needs a certificate of method='kl'")
        self._rows = RowEvidence(problem, self.certificate.transitions)
        self._returns = ReturnEvidence(self.certificate)
        self.episodes, self._largest, self._stride = 0, 0.0, 1
        self._ended = [0.0] * len(LENGTHS)  # weighted e-values of the periods that are over
        self.excluded: str | None = None
        self.history: list[tuple[int, float]] = [(0, 0.0)]
        self._found: dict[str, int] = {}
        self._named: list[str] = []

    # -- observing -----------------------------------------------------------------------------------------------------

    def observe(
        self, states: Sequence[Any], actions: Sequence[Any], rewards: Sequence[float], terminated: bool = False
    ) -> None:
        """Add one episode, complete or not.

        Parameters
        ----------
        states : sequence
            The observations, one more than actions, as :meth:`Certificate.policy_of` takes them. If the episode
            terminated, the last one is ignored.
        actions : sequence
            The actions, chosen by any policy; for a model, their numbers.
        rewards : sequence of float
            The rewards, one for each action.
        terminated : bool
            Whether the episode ended with the last action, and was not cut.

        Raises
        ------
        InvalidProblemError
            If the lengths do not match, or an action or a reward is invalid. An excluded outcome is an alarm, not an error.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> monitor = eb.Monitor(result)
        >>> monitor.observe([0, 6], [1], [0.0])  # which the model does not allow
        >>> monitor.alarm, monitor.evidence
        (True, inf)
        """
        states, actions, rewards = list(states), list(actions), list(rewards)
        if not len(states) == len(actions) + 1 == len(rewards) + 1:
            sizes = f"{len(states)} states, {len(actions)} actions and {len(rewards)} rewards"
            raise InvalidProblemError(f"an episode has one state more than actions and as many rewards; got {sizes}")
        done = [self._action(action) for action in actions]
        paid = [check_finite(f"rewards[{h}]", reward) for h, reward in enumerate(rewards)]
        problem = self.certificate.problem
        ended = check_flag("terminated", terminated) and problem.black_box_rewards and bool(actions)
        path = [self._state(state) for state in (states[:-1] if ended else states)]
        after = [*path[1:], problem.n_states - 1] if ended else path[1:]
        self._add(path, after, done, paid, ended)

    def observe_log(self, log: Log) -> None:
        """Add the episodes of a log, in the order of their first lines.

        Parameters
        ----------
        log : Log
            The log; its labels are those of the certificate.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=1)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> columns = {"episode": "e", "step": "t", "state": "s", "action": "a", "reward": "r", "next_state": "n"}
        >>> table = {"e": [0, 1], "t": [0, 0], "s": [0, 0], "a": [0, 0], "r": [0.0, 0.0], "n": [1, 1]}
        >>> monitor = eb.Monitor(result)
        >>> monitor.observe_log(eb.Log.read(table, **columns, truncated=True))
        >>> monitor.episodes
        2
        """
        actions = [self._action(action) for action in log.actions]
        numbers: dict[int, int | None] = {len(log.states): self.certificate.problem.n_states - 1}
        for visited, following, done, rewards, ended in log.walks():
            for state in (*visited, *following):
                if state not in numbers:  # in order, because new states are numbered as they come
                    numbers[state] = self._state(log.states[state])
            states, after = ([numbers[state] for state in part] for part in (visited, following))
            self._add(states, after, [actions[a] for a in done], rewards, ended)

    def watch(self, env: Any) -> Any:
        """Wrap a Gymnasium environment: every episode that is played in it is observed.

        Parameters
        ----------
        env : gymnasium.Env
            The environment.

        Returns
        -------
        gymnasium.Wrapper
            The environment. An episode is observed when it terminates, is truncated or reaches the horizon, or at the
            next ``reset``.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> goal = {"beta": -1.0, "eps": 0.5, "delta": 0.1}
        >>> result = eb.identify("FrozenLake-v1", horizon=4, reward_range=(0, 1), **goal, seed=1, max_episodes=50)
        >>> import gymnasium
        >>> monitor = eb.Monitor(result)
        >>> env = monitor.watch(gymnasium.make("FrozenLake-v1"))
        >>> seen = eb.rollout(env, result, episodes=20, seed=2)
        >>> monitor.episodes, monitor.alarm
        (20, False)
        """
        import gymnasium

        monitor = self

        class Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
            """The environment, which passes each episode to the monitor."""

            played: tuple[list[Any], list[Any], list[Any]] = ([], [], [])  # states, actions and rewards of an episode

            def reset(self, **options: Any) -> Any:
                self._hand_over(False)
                answer = self.env.reset(**options)
                self.played[0].append(answer[0])
                return answer

            def step(self, action: Any) -> Any:
                answer = self.env.step(action)
                observation, reward, terminated, truncated, _ = answer
                if self.played[0]:
                    for part, value in zip(self.played, (observation, action, float(reward)), strict=True):
                        part.append(value)
                if terminated or truncated or len(self.played[1]) == monitor.certificate.problem.horizon:
                    self._hand_over(bool(terminated))
                return answer

            def close(self) -> None:
                self._hand_over(False)
                super().close()

            def _hand_over(self, terminated: bool) -> None:
                """Observe the episode, also an unfinished one: leaving it out would be a selection by its outcome."""
                episode, self.played = self.played, ([], [], [])
                if episode[1]:
                    monitor.observe(*episode, terminated)

        return Watched(env)

    def _add(
        self, states: list[Any], following: list[Any], actions: list[int], rewards: list[float], ended: bool
    ) -> None:
        """Add an episode in numbers; None is an excluded state, and the last of ``following`` may be missing."""
        horizon = self.certificate.problem.horizon
        for i, length in enumerate(LENGTHS):  # restart the periods that are over
            if self.episodes and self.episodes % length == 0:
                self._ended[i] += math.exp(min(self._current(i)[0], 600.0))
                self._rows.restart(i + 1)
                self._returns.wealth[i + 1] = 0.0
        self.episodes += 1
        contradiction = self._contradiction(states, following, actions, rewards, ended)
        if contradiction is not None and self.excluded is None:
            self.excluded = f"episode {self.episodes}: {contradiction}"
        if self.excluded is None:
            known, free = [state for state in states if state is not None], set(self._found.values())
            complete = ended and len(actions) <= horizon
            self._returns.add(known, actions[:horizon], rewards[:horizon], ended=complete, free=free)
        e = math.inf if self.excluded is not None else self._log_e()
        if e > self._largest:
            self._largest = e
            if self.alarm and not self._named:
                self._named = self._most_unlike()
        if self.episodes % self._stride == 0:
            self.history.append((self.episodes, e))
        if len(self.history) > _MOST_POINTS:
            self.history, self._stride = self.history[::2], 2 * self._stride

    def _contradiction(
        self, states: list[Any], following: list[int | None], actions: list[int], rewards: list[float], ended: bool
    ) -> str | None:
        """Add the transitions of an episode, up to the first one that the declarations exclude; describe that one."""
        problem, rows, horizon = self.certificate.problem, self._rows, self.certificate.problem.horizon
        first, unknown = states[0], "a state that the certificate does not have"
        if first is None:
            return f"it began in {unknown}"
        begins = first == problem.start
        if problem.artificial:
            begins = rows.add(problem.n_rows - 1, first, problem.possible_rewards[0]) is None
        if not begins:
            return f"it began in state {problem.state_names[first]!r}, which is declared impossible"
        # Of steps that are pooled, those after the horizon count as well.
        steps = len(actions) if problem.stationary and problem.black_box_rewards else horizon
        walk = zip(states[:steps], following, actions, rewards, strict=False)
        for t, (state, successor, action, reward) in enumerate(walk):
            row = int(problem.rows_at(problem.artificial + (0 if problem.stationary else t), np.array([state]))[action])
            wrong = None
            if successor is None:
                wrong = f"went to {unknown}"
            elif rows.wrong_reward(t, row, state, action, successor, reward):
                wrong = f"paid {reward:g}, which is declared impossible"
            # What follows the last step of a log may have been unknown, and then counts as an end.
            elif not self.certificate._of_a_log or problem.stationary or t < horizon - 1:
                wrong = rows.add(row, successor, reward)
            if wrong is not None:
                return f"step {t}, {problem.describe(row).removeprefix(f'step {t}, ')} {wrong}"
        earned = math.fsum(f * reward for f, reward in zip(problem.factors.tolist(), rewards, strict=False))
        least, most = problem.return_limits
        if (ended or len(actions) >= horizon) and not least <= earned <= most:
            return f"its return was {earned:g}, outside the declared range ({least:g}, {most:g})"
        return None

    def _log_e(self) -> float:
        """Return the logarithm of the e-value: half of its weight is since the beginning, the rest in shorter periods.

        The m-th period of a length has the weight 1/(m(m+1)); those to come, which count 1, have 1/(m+1) together.
        """
        parts = [self._of_period(0) - math.log(2.0)]
        for i in range(len(LENGTHS)):
            current, number = self._current(i)
            total = np.logaddexp(current, math.log(self._ended[i] + 1 / (number + 1)))
            parts.append(float(total) - math.log(2.0 * len(LENGTHS)))
        return float(np.logaddexp.reduce(parts))

    def _current(self, i: int) -> tuple[float, int]:
        """Return the logarithm of the weighted e-value of the current period of a length, and that period's number."""
        number = (self.episodes - 1) // LENGTHS[i] + 1
        return self._of_period(i + 1) - math.log(number * (number + 1)), number

    def _of_period(self, period: int) -> float:
        e = self._rows.log_e(period)
        return float(np.logaddexp(e, self._returns.log_e(period))) - math.log(2.0) if self._returns.possible else e

    def _state(self, observation: Any) -> int | None:
        """Return the number of a state: a new one if some were not seen yet, None if it is excluded."""
        certificate, problem = self.certificate, self.certificate.problem
        if not problem.black_box_rewards:
            if isinstance(observation, str) and observation not in certificate._numbers:
                return None
            return certificate._state_of(observation)
        names = list(names_for(observation)) if certificate._of_a_log else [label(observation)]
        for name in names:
            number = self._found.get(name, certificate._numbers.get(name))
            if number is not None:
                return number
        used = set(self._found.values())
        free = [i for i, name in enumerate(problem.labels[0][:-1]) if name.startswith("#") and i not in used]
        if problem.max_states is None or not free:
            return None
        self._found[names[0]] = free[0]
        return free[0]

    def _action(self, action: Any) -> int:
        certificate, names = self.certificate, self.certificate.problem.labels[1]
        if not certificate.problem.black_box_rewards and not isinstance(action, str):
            return check_integer("an action", action, at_least=0, at_most=len(names) - 1)
        known = names_for(action) if certificate._of_a_log else [action if isinstance(action, str) else label(action)]
        for name in known:
            if name in names:
                return list(names).index(name)
        raise InvalidProblemError(f"{shown(action)} is not one of the actions {', '.join(map(repr, names[:10]))}")

    # -- answers -------------------------------------------------------------------------------------------------------

    @property
    def evidence(self) -> float:
        """The logarithm of the largest e-value so far; the alarm is on from log(1/``level``)."""
        return math.inf if self.excluded is not None else self._largest

    @property
    def alarm(self) -> bool:
        """Whether the episodes contradict what the certificate assumes or claims."""
        return bool(self.evidence >= -math.log(self.level))

    @property
    def suspects(self) -> list[str]:
        """The strongest evidence against the certificate, expected and observed; after an alarm, as it was at the alarm."""
        return self._named or self._most_unlike()

    def _most_unlike(self) -> list[str]:
        if self.excluded is not None:
            return [self.excluded]
        problem, said = self.certificate.problem, []
        for e, period, row in self._rows.largest(_MOST_ROWS):
            outcome, (low, high), share = self._rows.compared(row, period)
            fixed = problem.black_box_rewards and not problem.random_rewards and problem.noise is None
            paid = f" with reward {outcome.low:g}" * (fixed and not (row == problem.n_rows - 1 and problem.artificial))
            said.append(
                f"{problem.describe(row)} to state {problem.state_names[outcome.successor]!r}{paid}: "
                f"expected {100 * low:.3g} % to {100 * high:.3g} %, seen {100 * share:.3g} % (log e = {e:.3g})"
            )
        e, lower = max(map(self._returns.log_e, range(PERIODS))), self._returns.lower
        if self._returns.possible and e > 0:
            said.append(f"returns of the policy: expected a value of at least {lower:.3g} (log e = {e:.3g})")
        return said

    def plot(self) -> Figure:
        """Draw the e-value over the episodes.

        Returns
        -------
        Figure
            The Matplotlib figure.

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> len(eb.Monitor(result).plot().axes)
        1
        """
        import entropic_bpi

        return entropic_bpi.plots.evidence(self.history, level=self.level)

    @property
    def verdict(self) -> str:
        """The result so far in words."""
        alarm, e = -math.log(self.level), self.evidence
        said = "ALARM: do not rely on the certificate" if self.alarm else "some evidence of a change, no alarm"
        return f"log e = {e:.3g}, alarm at {alarm:.3g}: {said if e > 1 or self.alarm else 'no sign of a change'}"

    def __repr__(self) -> str:
        return f"Monitor({self.episodes} episodes; {self.verdict})"

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the certificate and what was observed, so that :meth:`load` goes on.

        Parameters
        ----------
        path : path
            The file to write (JSON, compressed if its name ends in ``.gz``).

        Examples
        --------
        >>> import entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=5)
        >>> result = eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, successors="model", seed=1)
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     eb.Monitor(result).save(f"{folder}/monitor.json")
        ...     eb.Monitor.load(f"{folder}/monitor.json")
        Monitor(0 episodes; log e = 0, alarm at 4.61: no sign of a change)
        """
        content: dict[str, Any] = {name.lstrip("_"): getattr(self, name) for name in _SAVED}
        content |= {
            "format": FORMAT,
            "largest": _number(self._largest),
            "history": [[episodes, _number(e)] for episodes, e in self.history],
            "wealth": [[_number(w) for w in bets] for bets in self._returns.wealth.tolist()],
            "seen": [[row, o.successor, o.low, o.high, o.since] for row, o in self._rows.seen()],
            "certificate": json.loads(self.certificate._text()),
        }
        write_text_atomically(check_path("path", path), json.dumps(content) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Monitor:
        """Read a monitor that :meth:`save` wrote.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        Monitor
            The monitor, which goes on where it was.

        Raises
        ------
        CertificateError
            If the file is not one that :meth:`save` wrote.

        Examples
        --------
        >>> import tempfile, pathlib, entropic_bpi as eb
        >>> bridge = eb.instances.risky_bridge(horizon=7)
        >>> monitor = eb.Monitor(eb.identify(bridge, beta=-1.0, eps=0.5, delta=0.1, seed=1).certificate)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "monitor.json"
        >>> monitor.save(path)
        >>> eb.Monitor.load(path).alarm
        False
        """
        path = check_path("path", path)
        with refusals(path):
            content = parsed(path)
            if not isinstance(content, dict) or content.get("format") != FORMAT:
                raise CertificateError(f"{path} is not a monitor of entropic-bpi")
            monitor = cls(Certificate._of_content(content["certificate"], path), level=content["level"])
            monitor._restore(content)
        return monitor

    def _restore(self, content: dict[str, Any]) -> None:
        self.episodes = check_integer("episodes", content["episodes"], at_least=0)
        self.excluded, self._found = content["excluded"], dict(content["found"])
        self._stride, self._named = check_integer("stride", content["stride"]), [str(said) for said in content["named"]]
        self.history = [(int(episodes), float(e)) for episodes, e in content["history"]]
        wealth = [[check_finite("wealth", w) for w in bets] for bets in content["wealth"]]
        self._largest, self._returns.wealth = check_finite("largest", content["largest"]), np.array(wealth)
        self._ended = [check_finite("ended", e) for e in content["ended"]]
        if self._returns.wealth.shape != (PERIODS, len(ReturnEvidence.SHARES)) or len(self._ended) != len(LENGTHS):
            raise ValueError("another number of periods or bets")
        for row, successor, low, high, times in content["seen"]:
            many = [check_integer("times", time, at_least=0) for time in times]
            for reward, added in ((float(low), many), (float(high), [0] * len(many))):
                wrong = self._rows.add(int(row), int(successor), reward, added)
                if wrong is not None or len(many) != PERIODS:
                    raise ValueError(f"{self.certificate.problem.describe(int(row))} {wrong}")


def _number(value: float) -> float:
    """Return a number that JSON, which has no infinity, can write."""
    return max(-1e300, min(value, 1e300))
