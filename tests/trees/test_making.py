"""Making trees: steps in namespaces of their own on a root of four programs, as whoever runs the tests."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness import trees
from harness.errors import RuntimeUnavailable, UsageError
from harness.images import brought, chamber, recipes
from harness.images.halting import Halt, Halted
from tests.runtime.conftest import eventually
from tests.trees.workshop import Workshop, read


def test_trees_are_made_once_and_anew_when_their_source_changes(workshop: Workshop) -> None:
    """What is below is made first, what is there stays, what was replaced goes unless somebody runs it."""
    with pytest.raises(
        RuntimeUnavailable, match="file trees missing: high, low; get them with `fencepost images high low`"
    ):
        trees.need(["high", "low"])
    high = workshop.ensure()
    assert [line.split(",")[0] for line in workshop.lines] == [
        "tree low: made for others to stand on",
        f"tree high: made {high.reference} (1.2)",
    ]
    assert (read(high, "etc/low"), read(high, "etc/high"), high.version) == ("1.2\n", "1.2\n", "1.2")
    assert high.reference == recipes.load_all()["high"].tag
    assert (high.origin, high.command, high.workdir) == ("made", ("high",), "/")
    assert (high.env["LOW"], high.env["HIGH"]) == ("low", "high")
    low = workshop.ensure("low")
    assert workshop.lines == [f"tree low: present, {low.reference}, made"]
    assert low.layers == high.layers[1:]
    assert low.version is None
    assert workshop.ensure() == high
    assert trees.listing() == {"high": high, "low": low}
    assert trees.kept().unused_bytes == 0
    # A changed source of the upper one leaves the lower one alone.
    workshop.write("high", "low", "cat /etc/low /etc/low > /etc/high")
    changed = workshop.ensure()
    assert (read(changed, "etc/high"), changed.version) == ("1.2\n1.2\n", None)
    assert (changed.layers[1:], changed.id == high.id) == (low.layers, False)
    assert workshop.lines[-1].endswith("(step 1 of high): superseded, removed")
    assert not high.layers[0].exists()
    assert trees.need(["high"]) == {"high": changed}
    (workshop.folder / "low" / "note").write_text("1.3\n")
    assert workshop.ensure().layers[-1] == changed.layers[-1]
    assert len([line for line in workshop.lines if line.endswith("superseded, kept: a process uses it")]) == 2
    assert changed.layers[0].exists()
    assert workshop.drafts() == []
    outcome = trees.prune()
    assert sorted(outcome.values()) == ["kept: a process uses it"] * 2
    assert set(trees.remove_all().values()) == {"removed", "kept: a process uses it"}


def test_inside_a_step_is_root_of_nothing_but_its_own(workshop: Workshop) -> None:
    """It sees its files and those below, may give a file to anybody, and leaves nothing of /dev or /proc behind."""
    (workshop.folder / "low" / "tool").write_text("#!/bin/sh\n")
    (workshop.folder / "low" / "tool").chmod(0o755)
    told = "id -u; cat /proc/self/uid_map; ls /; ls /proc/1/root; chown 7:8 /etc/mine; ls /dev/fencepost; echo $0"
    workshop.write(
        "low", "debian:x", f"mkdir /run; ({told}) > /etc/mine", files={"note": "/etc/renamed", "tool": "/opt/"}
    )
    tree = workshop.ensure("low")
    words = read(tree, "etc/mine").split()
    assert words[:4] == ["0", "0", str(os.getuid()), "1"]
    assert "home" not in words  # the machine's own
    assert {"note", "tool"} <= set(words)
    top = tree.layers[0]
    assert (top / "etc" / "mine").stat().st_uid == os.getuid()
    assert (top / "etc" / "renamed").read_text() == "1.2\n"
    assert os.access(top / "opt" / "tool", os.X_OK)
    assert sorted(path.name for path in top.iterdir()) == ["etc", "opt", "run"]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("echo the reason why; exit 7", "exit code 7.*\n.*the reason why"),
        ("echo E: Failed to fetch it; exit 1", "Debian's mirror can't be reached"),
    ],
)
def test_a_failing_step_is_told_with_its_output(workshop: Workshop, run: str, words: str) -> None:
    """The error names the image, the cause where one can tell, and ends with what the step said; nothing stays."""
    workshop.write("high", "low", run)
    with pytest.raises(RuntimeUnavailable, match=rf"the tree of high \(step 1\) failed.*{words}"):
        workshop.ensure()
    assert workshop.drafts() == []
    assert trees.listing()["high"] is None


def test_a_step_that_is_stopped_ends_with_all_its_processes(workshop: Workshop) -> None:
    """Those that it left running too; what was made before stays, and is not made again."""
    marker = f"98{secrets.randbelow(10**6)}"
    workshop.write("high", "low", f"sleep {marker} & sleep {marker}")
    halt = Halt()

    def stop_once_it_runs() -> None:
        eventually("both processes of the step's", lambda: len(processes(marker)) >= 2)
        halt.stop()

    stopper = threading.Thread(target=stop_once_it_runs)
    stopper.start()
    with pytest.raises(Halted):
        trees.ensure(["high"], report=workshop.lines.append, halt=halt)
    stopper.join()
    eventually("their end", lambda: not processes(marker))
    assert workshop.drafts() == []
    workshop.write("high", "low", "cat /etc/low > /etc/high")
    workshop.ensure()
    assert [line.split(":")[0] for line in workshop.lines] == ["tree high"]


MAKER = """
import sys
from pathlib import Path
from harness import trees
from harness.images import recipes
recipes.docker_folder = lambda: Path(sys.argv[1])
trees.ensure(["high"], report=lambda line: print(line, flush=True))
"""


def test_a_killed_maker_leaves_no_process_and_what_it_began_is_swept(workshop: Workshop) -> None:
    """kill -9: the step's processes go by themselves, and the next one removes the draft."""
    marker = f"98{secrets.randbelow(10**6)}"
    workshop.write("high", "low", f"sleep {marker}")
    process = subprocess.Popen([sys.executable, "-c", MAKER, str(workshop.folder)], stdout=subprocess.DEVNULL)
    try:
        eventually("the step's process", lambda: processes(marker), 60)
    finally:
        process.kill()
        process.communicate()
    eventually("its end", lambda: not processes(marker))
    assert len(workshop.drafts()) == 1
    workshop.write("high", "low", "cat /etc/low > /etc/high")
    workshop.ensure()
    assert workshop.drafts() == []


def test_trees_are_made_inside_a_container_too(workshop: Workshop, tmp_path: Path) -> None:
    """Its own file system is an overlay, on which no further one can write: there a step writes to memory first."""
    for name in ("upper", "work", "mount"):
        (tmp_path / name).mkdir()
    overlay = f"userxattr,lowerdir={workshop.cache.folder},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    script = f'mount -t overlay -o {overlay} none "$1" && FENCEPOST_TREES="$1" exec "$2" -c "$3" "$4"'
    (tmp_path / "upper").chmod(0o700)
    words = ["sh", "-c", script, "-", str(tmp_path / "mount"), sys.executable, MAKER, str(workshop.folder)]
    environment = {**os.environ, "PATH": chamber.search_path()}
    done = subprocess.run(chamber.chambered(words), env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1].startswith("tree high: made"), done.stderr
    (high,) = (tmp_path / "upper" / "layers").glob("*/root/etc/high")
    assert high.read_text() == "1.2\n"
    assert workshop.drafts() == []
    assert list((tmp_path / "upper" / "drafts").iterdir()) == []


def test_a_full_disk_is_told_and_nothing_stays_on_it(workshop: Workshop, tmp_path: Path) -> None:
    """Whoever meets it, the step or the harness; the next attempt has the room that there was."""
    (tmp_path / "mount").mkdir()
    workshop.write("high", "low", "cat /dev/zero > /large", files={"file": "/etc/"})
    (workshop.folder / "high" / "file").write_text("content")
    script = 'mount -t tmpfs -o size=32m none "$1" && cp -a "$2/." "$1" && FENCEPOST_TREES="$1" "$3" -c "$4" "$5"'
    script += '; find "$1/drafts" -mindepth 1; cat /dev/zero > "$1/rest"; FENCEPOST_TREES="$1" "$3" -c "$4" "$5"'
    words = ["sh", "-c", script, "-", str(tmp_path / "mount"), str(workshop.cache.folder), sys.executable, MAKER]
    environment = {**os.environ, "PATH": chamber.search_path()}
    command = chamber.chambered([*words, str(workshop.folder)])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["tree low: made for others to stand on"]
    assert "the tree of high (step 1) failed with exit code 1 (the disk is full)" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "No space left on device" in last
    assert "FENCEPOST_TREES" in last


def test_packages_that_were_noted_elsewhere_are_none_of_these_tables(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when another process notes them while this one makes its trees."""
    monkeypatch.setattr(brought, "noted", lambda: {brought.name_of(["six==1.17"]): b"six==1.17\n"})
    assert workshop.ensure("high").name == "high"
    assert set(trees.listing()) == {"high", "low"}


def test_two_that_make_the_same_make_it_once(workshop: Workshop) -> None:
    """The second waits, finds it there, and makes nothing."""
    command = [sys.executable, "-c", MAKER, str(workshop.folder)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    lines = [line for each in both for line in each.communicate()[0].splitlines()]
    assert [each.returncode for each in both] == [0, 0]
    assert len([line for line in lines if line.startswith("tree high: made")]) == 1
    assert len(workshop.cache.all()) == 3


def test_new_authorities_make_the_layer_that_holds_them_anew(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree from before the host had its TLS proxy can't be built upon; one that is there needs nothing."""
    workshop.write("low", "debian:x", "ls /etc/ca > /etc/low", files={"ca/": "/etc/ca/", "note": "/etc/"})
    monkeypatch.setattr("harness.trees.maker.extra_authorities", dict)
    first = workshop.ensure()
    assert read(first, "etc/low") == ""
    monkeypatch.setattr("harness.trees.maker.extra_authorities", lambda: {"new.crt": b"x"})
    assert workshop.ensure() == first
    workshop.write("high", "low", "cat /etc/low /etc/note > /etc/high")
    assert read(workshop.ensure(), "etc/high") == "new.crt\n1.2\n"


def test_what_has_no_table_can_only_be_exported(workshop: Workshop) -> None:
    """One with a Dockerfile alone, or that the user named: the error says what would be taken, and from where."""
    (workshop.folder / "high" / "image.toml").unlink()
    assert (trees.must_be_exported("high"), trees.must_be_exported("low")) == (True, False)
    with pytest.raises(RuntimeUnavailable, match=r"docker/high has a Dockerfile, but no image.toml\), and no Docker"):
        workshop.ensure()
    with pytest.raises(RuntimeUnavailable, match=r"`fencepost images low --image low=my/own:1`"):
        trees.need(["low"], {"low": "my/own:1"})
    with pytest.raises(RuntimeUnavailable, match=r"from the image my/own:1 \(you named it\), and no Docker engine"):
        trees.ensure(["low"], report=print, overrides={"low": "my/own:1"})
    for name in ("hihg", "base"):
        with pytest.raises(UsageError, match=f"unknown image '{name}'"):
            trees.need([name])


def processes(marker: str) -> list[int]:
    """The processes of this machine that have a word in their command line; one that has ended has none."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (folder / "cmdline").read_bytes().decode(errors="replace").split("\0"):
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_chamber_that_cannot_be_had_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whether it is the kernel's limit, a rule, or a Python that nobody but its owner may run."""
    assert chamber.why_not() is None
    for words, remedy in (
        ("unshare failed: No space left on device", "max_user_namespaces"),
        ("unshare failed: Operation not permitted", "apparmor_restrict_unprivileged_userns"),
        ("mount /proc failed: Operation not permitted", "systempaths=unconfined"),
        ("failed to execute /x: Permission denied", "/x: Permission denied"),
    ):
        refusing = tmp_path / "setpriv"
        refusing.write_text(f"#!/bin/sh\necho 'unshare: {words}' >&2\nexit 1\n")
        refusing.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        assert remedy in (chamber.why_not() or "")


TRYING = """
import sys
from pathlib import Path
from harness.trees import making
from harness.trees.cache import Cache
making.on_overlay = lambda folder: False
cache = Cache(Path(sys.argv[1]) / "mount")
cache.prepare()
print(making.why_not(cache))
print(list((cache.folder / "drafts").iterdir()))
"""


def test_where_overlayfs_cannot_write_that_is_told_before_anything_is_made(workshop: Workshop, tmp_path: Path) -> None:
    """By trying, on the folder itself: here one on a file system that overlayfs doesn't write to."""
    assert trees.why_not() is None
    (tmp_path / "mount").mkdir()
    overlay = f"userxattr,lowerdir={workshop.cache.folder},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    script = (
        f'mkdir -m 700 "$1/upper" "$1/work" && mount -t overlay -o {overlay} none "$1/mount" && exec "$2" -c "$3" "$1"'
    )
    words = ["sh", "-c", script, "-", str(tmp_path), sys.executable, TRYING]
    environment = {**os.environ, "PATH": chamber.search_path()}
    done = subprocess.run(chamber.chambered(words), env=environment, capture_output=True, text=True, check=False)
    reason, left = done.stdout.splitlines()
    assert reason.startswith(f"overlayfs can't be used in a user namespace at {tmp_path}/mount (mount: ")
    assert "FENCEPOST_TREES" in reason
    assert left == "[]"


def test_a_signal_from_outside_is_no_success(workshop: Workshop) -> None:
    """A step whose first process was killed (no memory left) has failed."""
    marker = f"98{secrets.randbelow(10**6)}"
    workshop.write("high", "low", f"exec sleep {marker}")

    def kill_once_it_runs() -> None:
        eventually("the step's process", lambda: processes(marker))
        os.kill(processes(marker)[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_once_it_runs)
    killer.start()
    with pytest.raises(RuntimeUnavailable, match="failed with exit code"):
        workshop.ensure()
    killer.join()
