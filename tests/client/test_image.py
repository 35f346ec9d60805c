"""A client in an image of the user's own: what is asked for, what it is called, and the words for what is not in there.

Without an engine; a trial with one is in test_in_image.py.
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.errors import ConfigError, RuntimeUnavailable, UsageError
from harness.images.theirs import Theirs
from harness.matrix import load
from harness.matrix.plan import same
from harness.runtime import idle
from harness.trial.config import TrialConfig, from_mapping, resolve
from nemesis.agent import roles
from tests.waiting import until
from workloads.adapters import inside
from workloads.adapters.inside import Inside


def _asked(**keys: Any) -> TrialConfig:
    return resolve(from_mapping({"system": "redis", "seed": 1, **keys}))


def test_it_is_called_after_its_image_or_its_command_and_told_apart_by_both() -> None:
    """The image's own command where none is given; contenders trust it; another image is another client."""
    config = _asked(client_image="reg.example:5000/team/mylock:1.2", fault="freeze-holder")
    assert config.describe() == "redis by mylock x freeze-holder, trusting"
    assert config.slug() == "redis-freeze-holder-mylock-trusting"
    assert config.cell()["parameters"]["client"] == "mylock"
    words = config.repeat_command().split()
    assert words[words.index("--client-image") + 1] == "reg.example:5000/team/mylock:1.2"
    assert words[words.index("--client-digest") + 1] == config.client_digest
    assert "--client" not in words
    client = config.brought_client()
    assert client is not None
    assert (client.command, dict(client.files)) == ((), {})
    assert _asked(client_image="mylock:1").client_digest != _asked(client_image="mylock:2").client_digest
    by_command = _asked(client_image="mylock:1", client="java -jar /app/lock.jar -v")
    assert by_command.client_words() == "lock"
    assert by_command.client == "java -jar /app/lock.jar -v"


def test_a_command_in_an_image_is_no_file_of_this_machine_but_where_its_folder_is_sent(tmp_path: Path) -> None:
    """A path is one in there; with a folder its words are paths in that one, as ever."""
    alone = _asked(client="./bin/mylock -x", client_image="mylock:1").brought_client()
    assert alone is not None
    assert (alone.command, alone.image) == (("./bin/mylock", "-x"), "mylock:1")
    (tmp_path / "mylock").write_bytes(b"\x7fELF")
    (tmp_path / "mylock").chmod(0o755)
    sent = _asked(client="mylock -x", client_image="mylock:1", client_dir=str(tmp_path)).brought_client()
    assert sent is not None
    assert (sent.command, list(sent.files)) == (("./mylock", "-x"), ["mylock"])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"client_image": "Bad:Ref:x"}, "client_image: 'Bad:Ref:x' is no image reference"),
        ({"client_image": "a:1", "client_dir": "{folder}"}, "client: which command is to be started in the folder"),
        (
            {"client_image": "a:1", "client": "lock.py", "client_dir": "{folder}"},
            "client: needs packages of Python, and they can't be installed in an image that is given",
        ),
        ({"client_image": "a:1", "fault": "unlock-holder"}, "fault: unlock takes away the lock of the system's own"),
        ({"client_image": "a:1", "endpoints": ["localhost:1"]}, "client: is one of your own, and those can't be used"),
    ],
)
def test_what_makes_no_sense_with_an_image_is_told_by_its_key(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Before anything starts."""
    (tmp_path / "lock.py").write_text("print()\n")
    (tmp_path / "requirements.txt").write_text("redis\n")
    with pytest.raises(ConfigError, match=words):
        _asked(**{k: v.format(folder=tmp_path) if isinstance(v, str) else v for k, v in keys.items()})


def test_images_are_an_axis_and_the_command_of_one_is_none_of_another(tmp_path: Path) -> None:
    """Two tags of one image are called by their tags; where the same client runs it is the same cell."""
    file = tmp_path / "matrix.toml"
    file.write_text(
        '[defaults]\nsystem = "redis"\nseed = 1\n[axes]\nclient_image = ["reg/mylock:1", "reg/mylock:2"]\n'
        'fault = ["none", "freeze-holder"]\n[[cells]]\nsystem = "redis"\nclient = "/bin/other"\nclient_image = "x"\n'
    )
    cells = load(file).cells
    assert [cell.client_words() for cell in cells] == [*["mylock:1"] * 2, *["mylock:2"] * 2, "other"]
    assert len({cell.slug() for cell in cells}) == 5
    assert same(cells[0]) == same(_asked(client_image="reg/mylock:1")) != same(cells[2])


@pytest.mark.local
def test_where_there_are_no_containers_it_is_refused_with_what_works_there(tmp_path: Path) -> None:
    """Before anything is written."""
    done = CliRunner().invoke(cli, ["run", "redis", "--client-image", "a:1", "--results", str(tmp_path / "results")])
    assert isinstance(done.exception, UsageError)
    assert "client_image: an image needs a container engine, and with runtime local" in str(done.exception)
    assert "--client-dir" in str(done.exception)
    assert not (tmp_path / "results").exists()


def test_check_looks_at_one_on_nodes_alone() -> None:
    """What is in an image can't be started here."""
    for words, said in [(["--client-image", "a:1"], "give --system"), ([], "name the COMMAND")]:
        done = CliRunner().invoke(cli, ["adapter", "check", *words])
        assert isinstance(done.exception, UsageError)
        assert said in str(done.exception)


def test_an_image_is_for_a_machine() -> None:
    """An engine names the machine of images and its own alike."""
    assert Theirs("a:1", "sha256:0", None, "arm64", "amd64", ()).foreign
    assert not Theirs("a:1", "sha256:0", None, "amd64", "amd64", ()).foreign
    assert not Theirs("a:1", "sha256:0", None, "", "amd64", ()).foreign


def test_what_keeps_an_image_at_hand_sleeps_and_needs_nothing(tmp_path: Path) -> None:
    """The file made here runs as it is, waits without a processor, is known by its name, and ends by a signal."""
    assert idle.IDLE == inside.IDLE == roles.IDLE
    program = tmp_path / idle.PATH.lstrip("/")
    program.write_bytes(idle.program(os.uname().machine))
    program.chmod(0o755)
    with subprocess.Popen([program]) as process:

        def said() -> list[str]:
            return Path(f"/proc/{process.pid}/stat").read_text().split()[1:3]

        until(lambda: said() == [f"({idle.IDLE})", "S"], "its sleep")
        process.kill()
    with pytest.raises(RuntimeUnavailable, match=r"on this architecture \(s390x\), only on x86_64, aarch64"):
        idle.program("s390x")


@pytest.mark.parametrize(
    ("command", "folder", "error", "words"),
    [
        ("nosuch", None, errno.ENOENT, "there is no program 'nosuch' in the image (in /bin:/usr/bin)"),
        ("/no/such", None, errno.ENOENT, "there is no program '/no/such' in the image"),
        ("script", None, errno.ENOENT, "its interpreter is not in the image (its first line is '#!/bin/ksh')"),
        ("linked", None, errno.ENOENT, "its interpreter is not in the image (its first line is '#!/bin/ksh')"),
        ("./dynamic", "/app", errno.ENOENT, "its loader is not in the image: it is no static binary"),
        ("./dynamic", None, errno.ENOENT, "its loader is not in the image: it is no static binary"),
        ("./plain", "/app", errno.EACCES, "'./plain' is not executable in the image, for user 7"),
        ("./dynamic", "/app", errno.ENOEXEC, f"'./dynamic' is no program for this machine ({os.uname().machine})"),
    ],
)
def test_why_a_program_does_not_start_in_there_is_told_in_words(
    command: str, folder: str | None, error: int, words: str, tmp_path: Path
) -> None:
    """Its paths, links and search path are those of the image, not of the node."""
    for name, content in {"usr/bin/script": b"#!/bin/ksh\n", "app/dynamic": b"\x7fELF", "app/plain": b"text"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "linked").symlink_to("/usr/bin/script")
    place = Inside(tmp_path, "/app", {"PATH": "/bin:/usr/bin"}, user=7, group=7, groups=())
    said = place.why(OSError(error, os.strerror(error)), command, folder)
    assert said.startswith(words)


def test_its_environment_is_the_image_s_and_the_helper_is_on_its_path() -> None:
    """Nothing of the contender's own; a PYTHONPATH of the image's comes after the helper's."""
    bare = Inside(Path("/"), "/", {"PATH": "/bin", "MODE": "a"}, 0, 0, ())
    assert bare.environment({"MORE": "1"}) == {"PATH": "/bin", "MODE": "a", "PYTHONPATH": inside.HELPER, "MORE": "1"}
    with_path = Inside(Path("/"), "/", {"PYTHONPATH": "/app"}, 0, 0, ())
    assert with_path.environment({}) == {"PYTHONPATH": f"{inside.HELPER}:/app"}
