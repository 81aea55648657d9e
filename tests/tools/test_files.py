"""Files appear whole and with the user's permissions, leftovers go, and a folder has one user at a time."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from entropic_bpi.tools.files import locked, read_csv, write_atomically, write_csv, write_text_atomically

posix = pytest.mark.skipif(os.name != "posix", reason="permissions, signals and locks of POSIX")


def start(script, *words):
    return subprocess.Popen([sys.executable, "-c", script, *map(str, words)], stdout=subprocess.PIPE, text=True)


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_umask_decides_who_may_read(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_text_atomically(tmp_path / "new", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o666 & ~mask


def test_an_error_leaves_the_old_content_and_no_other_file(tmp_path):
    def fails(file):
        file.write(b"half")
        raise RuntimeError

    write_text_atomically(tmp_path / "file", "old")
    with pytest.raises(RuntimeError):
        write_atomically(tmp_path / "file", fails)
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path):
    (tmp_path / "file").touch()
    for folder in ("missing", "file"):
        path = tmp_path / folder / "claim.json"
        with pytest.raises((FileNotFoundError, NotADirectoryError)) as caught:
            write_text_atomically(path, "text")
        assert caught.value.filename == str(path)
        assert str(caught.value).endswith(f"'{path}'")


def test_threads_may_write_one_file_at_the_same_time(tmp_path):
    texts = [str(i) * 100_000 for i in range(8)]
    threads = [threading.Thread(target=write_text_atomically, args=(tmp_path / "file", text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file").read_text() in texts
    assert os.listdir(tmp_path) == ["file"]


WRITE_SLOWLY = """
import sys, time
from entropic_bpi.tools.files import write_atomically
def write(file):
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
write_atomically(sys.argv[1], write)
"""


@posix
def test_what_a_killed_writer_left_is_removed_and_what_another_one_is_writing_is_not(tmp_path):
    killed, alive = (start(WRITE_SLOWLY, tmp_path / name) for name in ("killed", "alive"))
    try:
        for writer in (killed, alive):
            assert writer.stdout.readline() == "writing\n"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(os.listdir(tmp_path)) == 2
        (tmp_path / ".mine.1-2.part").touch()
        write_text_atomically(tmp_path / "file", "text")
        left = set(os.listdir(tmp_path)) - {"file", ".mine.1-2.part"}
        assert [name.split(".")[1] for name in left] == ["alive"]
    finally:
        for writer in (killed, alive):
            writer.kill()
            writer.wait()
            writer.stdout.close()


HOLD = """
import sys, time
from pathlib import Path
from entropic_bpi.tools.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@posix
def test_a_folder_is_locked_until_its_holder_ends_or_is_killed(tmp_path):
    holder = start(HOLD, tmp_path)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError), locked(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with locked(tmp_path), pytest.raises(BlockingIOError), locked(tmp_path):
            pass
        with locked(tmp_path):
            pass
        assert os.listdir(tmp_path) == []
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


@posix
def test_two_never_hold_a_folder_at_once(tmp_path):
    """Many short holds, so that a lock file is often removed while another is about to lock it."""
    inside, overlaps, holds = [], [], []

    def hold_often():
        for _ in range(500):
            try:
                with locked(tmp_path):
                    inside.append(1)
                    overlaps.append(len(inside) > 1)
                    inside.pop()
                    holds.append(1)
            except BlockingIOError:
                pass

    threads = [threading.Thread(target=hold_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(holds) > 100
    assert not any(overlaps)


@pytest.mark.parametrize("cell", ["a\nb", "a\x0bb", "a\x85b", "a\u2028b", "=1", "'x", 'a"b,c'])
def test_a_table_is_read_as_it_was_written(tmp_path, cell):
    write_csv(tmp_path / "table.csv", ("state", "action"), [(cell, "1"), ("next", "2")])
    lines = [{"state": cell, "action": "1"}, {"state": "next", "action": "2"}]
    assert read_csv(tmp_path / "table.csv", "state", "action") == lines


def test_a_table_saved_by_a_spreadsheet_is_read(tmp_path):
    (tmp_path / "table.csv").write_text("state,action\r\n0,1\r\n", encoding="utf-8-sig", newline="")
    assert read_csv(tmp_path / "table.csv", "state", "action") == [{"state": "0", "action": "1"}]
