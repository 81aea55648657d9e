"""Models of PRISM and Storm; models in the PRISM language are built by Storm (``stormpy``, extra ``prism``)."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.formats import drn
from entropic_bpi.model.formats.registry import FORMATS
from entropic_bpi.model.mdp import FiniteMDP

_SUFFIXES = tuple(suffix for each in FORMATS if each.has_rewards for suffix in each.suffixes)
_DIGITS = 17  # with this many digits a double is read exactly


def from_prism(path: str | Path, *, reward: str | None = None, horizon: int, start: Any = None) -> FiniteMDP:
    """Read a model of PRISM or Storm.

    The reward of a step is the sum of the rewards of the state, the action and the transition, as in PRISM's cumulative
    rewards ``C<=k``. Labels become names of states, and names of actions are kept. Actions that are not enabled in a state
    are forbidden.

    Parameters
    ----------
    path : str or Path
        ``.tra`` (explicit files; ``.lab``, ``.srew`` and ``.trew`` are read beside it), ``.drn`` (Storm), or ``.prism``,
        ``.nm``, ``.pm`` (the PRISM language; needs the extra ``prism``).
    reward : str, optional
        The name of the reward; required if the file has several.
    horizon : int
        Number of steps, at least 1.
    start : optional
        First state, or distribution over states. The default is the initial state of the file.

    Returns
    -------
    FiniteMDP
        The model.

    Raises
    ------
    InvalidModelError
        If the file does not hold an MDP or a discrete-time Markov chain; the message names the file and the line.

    Examples
    --------
    >>> import tempfile
    >>> import entropic_bpi as eb
    >>> text = '''@type: MDP
    ... @reward_models
    ... time cost
    ... @model
    ... state 0 [1, 0] init
    ...     action go [0, 5]
    ...         0 : 0.5
    ...         1 : 0.5
    ... state 1 [0, 0] goal
    ...     action stay
    ...         1 : 1
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/model.drn", "w") as file:
    ...         _ = file.write(text)
    ...     mdp = eb.from_prism(f"{folder}/model.drn", reward="cost", horizon=10)
    >>> mdp.state_names, mdp.action_names, round(eb.solve(mdp, 0).value, 3)
    (('0', 'goal'), ('go', 'stay'), 9.99)
    """
    if not isinstance(path, (str, Path)) or Path(path).suffix.lower() not in _SUFFIXES:
        raise InvalidModelError(f"path must be a file of PRISM or Storm ({', '.join(_SUFFIXES)}), got {path!r}")
    return FiniteMDP.load(path, horizon=horizon, start=start, reward=reward)


def read(path: Path, reward: str | None = None) -> dict[str, Any]:
    try:
        import stormpy
        from stormpy.io import DirectEncodingExporterOptions, export_to_drn
    except ImportError:
        raise InvalidModelError(
            f"{path} is in the PRISM language, which needs stormpy 2: pip install 'entropic-bpi[prism]'; or export it with "
            "prism MODEL -exportmodel x.tra,lab,rews or storm --exportbuild x.drn"
        ) from None
    options = DirectEncodingExporterOptions()
    options.output_precision = _DIGITS
    with TemporaryDirectory() as folder:
        built = Path(folder, path.with_suffix(".drn").name)
        try:
            program = stormpy.parse_prism_program(str(path))
            model = stormpy.build_model(program, options=stormpy.BuilderOptions(build_full=True))
            export_to_drn(model, str(built), options=options)
            return drn.read(built, reward)
        except Exception as error:  # Storm raises exceptions of several types for files that it cannot read
            reason = error if isinstance(error, InvalidModelError) else f"{path}: {' '.join(str(error).split())}"
            raise InvalidModelError(str(reason).replace(str(built), str(path))) from None
