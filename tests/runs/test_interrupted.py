"""Ctrl-C leaves the certificate of what was proved so far."""

import json
import signal

import pytest
from typer.testing import CliRunner

import entropic_bpi as eb
from entropic_bpi import cli

ASKED = {"beta": -1.0, "eps": 1e-6, "delta": 0.1}


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard():
    """A process that a shell starts in the background ignores Ctrl-C, and these runs would not end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Impatient(type(eb.as_gymnasium(eb.instances.risky_bridge(horizon=5)))):
    """Somebody presses Ctrl-C during the fortieth episode."""

    episodes = 0

    def reset(self, **options):
        self.episodes += 1
        if self.episodes == 40:
            signal.raise_signal(signal.SIGINT)
        return super().reset(**options)


def test_the_interrupt_carries_the_result_so_far(tmp_path):
    env = Impatient(eb.instances.risky_bridge(horizon=5))
    with pytest.raises(KeyboardInterrupt) as caught:
        eb.identify(env, horizon=5, reward_range=(0, 1), seed=1, **ASKED)
    result = caught.value.result
    assert result.episodes >= 40
    assert not result.stopped
    path = tmp_path / "certificate.json"
    result.certificate.save(path)
    assert eb.verify(path).ok


def test_the_command_leaves_a_certificate_and_can_go_on(tmp_path):
    file = tmp_path / "impatient.py"
    file.write_text(
        "import pathlib\nimport signal\nimport entropic_bpi as eb\nseen = []\n"
        "pressed = pathlib.Path(__file__).with_suffix('.pressed')\n"
        "class Env(type(eb.as_gymnasium(eb.instances.risky_bridge(horizon=5)))):\n"
        "    def __init__(self):\n        super().__init__(eb.instances.risky_bridge(horizon=5))\n"
        "    def reset(self, **options):\n        seen.append(1)\n"
        "        if len(seen) == 40 and not pressed.exists():\n"
        "            pressed.touch()\n            signal.raise_signal(signal.SIGINT)\n"
        "        return super().reset(**options)\n"
    )
    out = tmp_path / "run"
    words = ["identify", f"{file}:Env", "--horizon", "5", "--reward-range", "0", "1", "--beta", "-1", "--eps", "1e-6"]
    words += ["--delta", "0.1", "--seed", "1", "--out", str(out), "-q"]
    stopped = CliRunner().invoke(cli.app, words, prog_name="entropic-bpi")
    assert stopped.exit_code == 130
    assert "certificate in" in stopped.output
    assert eb.verify(out / "certificate.json").ok
    assert json.loads((out / "certificate.json").read_text())["claim"]["reached"] is False
    again = CliRunner().invoke(
        cli.app, [*words, "--resume", "--max-episodes", "60", "--json"], prog_name="entropic-bpi"
    )
    assert again.exit_code == 1, again.output
    content = json.loads(again.stdout)
    assert next(iter(content)) == "warning"
    assert content["warning"] == "not certified: do not rely on this policy"
