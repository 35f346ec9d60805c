"""What a user means by `--client`, and the sentence when it can't be had."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from harness.client import brought, needs, sending
from harness.client.brought import Brought, Sent
from harness.errors import UsageError
from harness.images import brought as images


def _file(path: Path, text: str = "print()\n", *, executable: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)
    return path


def test_a_python_file_is_sent_alone_and_its_requirements_are_read(tmp_path: Path) -> None:
    """Its neighbours stay at home; what it needs is said beside it, comments and empty lines left out."""
    lock = _file(tmp_path / "mylock.py")
    _file(tmp_path / "other.py")
    _file(tmp_path / "requirements.txt", "# what it needs\nredis==5.0.1  # this one\n\nkazoo>=2 \\\n  ,<3\n")
    found = brought.read(f"{lock} --fast")
    assert found.command == ("python3", "-u", "mylock.py", "--fast")
    assert list(found.files) == ["mylock.py"]
    assert found.packages == ("redis==5.0.1", "kazoo>=2 ,<3")


def test_a_file_that_names_its_packages_itself_needs_no_other(tmp_path: Path) -> None:
    """The block of Python's own standard counts before a requirements.txt, also where it says that there are none."""
    _file(tmp_path / "requirements.txt", "redis\n")
    block = '# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n#   "etcd3gw==2.7.0",\n# ]\n# ///\n'
    assert brought.read(str(_file(tmp_path / "one.py", f'"""One."""\n{block}import os\n'))).packages == (
        "etcd3gw==2.7.0",
    )
    none = _file(tmp_path / "none.py", "# /// script\n# dependencies = []\n# ///\n")
    assert brought.read(str(none)).packages == ()
    broken = _file(tmp_path / "broken.py", "# /// script\n# dependencies = [\n# ///\n")
    with pytest.raises(UsageError, match=r"broken\.py: its block `# /// script` is not TOML"):
        brought.read(str(broken))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-r base.txt", "means something on this machine"),
        ("-e .", "means something on this machine"),
        ("./wheels/a.whl", "means something on this machine"),
        ("a @ file:///tmp/a", "means something on this machine"),
        ("--index-url https://example.org/simple", "--index-url: where packages come from"),
        ("--extra-index-url=https://example.org/simple", "--extra-index-url: where packages come from"),
        ("a @ https://me:hunter22@example.org/a.whl", "a password in a URL would be kept"),
    ],
)
def test_what_pip_could_not_fetch_for_a_node_is_refused(line: str, words: str) -> None:
    """A line that means a file of this machine, and one that would be kept with its password, which isn't shown."""
    with pytest.raises(UsageError, match=words) as raised:
        needs.listed(f"redis\n{line}\n".encode(), "requirements.txt")
    assert "hunter22" not in str(raised.value)


def test_a_command_in_a_folder_takes_all_of_the_folder_with_it(tmp_path: Path) -> None:
    """Modes and links that stay inside are kept; what version control keeps beside it stays at home."""
    _file(tmp_path / "lock.jar", "jar")
    _file(tmp_path / "bin" / "go", "#!/bin/sh\n", executable=True)
    _file(tmp_path / ".git" / "config")
    _file(tmp_path / "__pycache__" / "x.pyc")
    (tmp_path / "run").symlink_to("bin/go")
    found = brought.read("java -jar lock.jar", str(tmp_path))
    assert found.command == ("java", "-jar", "lock.jar")
    assert found.files == {
        "bin/go": Sent(b"#!/bin/sh\n", executable=True),
        "lock.jar": Sent(b"jar"),
        "run": Sent(link="bin/go"),
    }
    assert brought.read("run --now", str(tmp_path)).command == ("./run", "--now")
    assert brought.read("./bin/go", str(tmp_path)).command == ("./bin/go",)
    with tarfile.open(fileobj=io.BytesIO(sending.archive(found.files))) as tar:
        modes = {entry.name: (entry.mode & 0o111, entry.linkname) for entry in tar}
    assert (modes["bin/go"], modes["lock.jar"], modes["run"][1]) == ((0o111, ""), (0, ""), "bin/go")


def test_python_in_a_folder_has_the_requirements_of_the_folder(tmp_path: Path) -> None:
    """With or without its interpreter before it."""
    _file(tmp_path / "lock.py")
    _file(tmp_path / "requirements.txt", "kazoo\n")
    found = brought.read("lock.py -v", str(tmp_path))
    assert (found.command, found.packages) == (("python3", "-u", "lock.py", "-v"), ("kazoo",))
    assert brought.read("python3 lock.py", str(tmp_path)).packages == ("kazoo",)


def test_what_is_not_there_or_can_t_be_sent_is_told_with_its_name(tmp_path: Path) -> None:
    """Each case that a newcomer meets, before anything starts."""
    inside = tmp_path / "inside"
    _file(inside / "plain", "no program")
    _file(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    cases: list[tuple[str, str | None, str]] = [
        (f"{tmp_path}/x.py", None, "x.py: no such file"),
        (str(tmp_path), None, "is a folder; name a command"),
        (f"{inside}/plain", None, r"plain is not executable \(`chmod \+x .*plain`\), and no Python file"),
        (f"{tmp_path}/pipe", None, "is no file, but a device, a pipe or a socket"),
        ("redsi", None, r"unknown client 'redsi'; did you mean 'redis'\?.*written \./redsi"),
        ("'", None, "can't be read as a command: No closing quotation"),
        (" ", None, "is empty"),
        (f"java {tmp_path}/secret", None, "is a file here, and would not be on a node; give its folder as client_dir"),
        ("java -jar lock.jar", str(inside), "there is no file lock.jar in "),
        ("./plain", str(inside), "plain is not executable"),
        ("./go", str(inside), r"there is no file \./go in "),
        ("../secret", str(inside), r"\.\./secret lies outside of "),
        ("x.py", str(tmp_path / "nowhere"), "nowhere: no such folder"),
        ("x.py", str(inside / "plain"), "plain: is no folder"),
    ]
    for client, folder, words in cases:
        with pytest.raises(UsageError, match=words):
            brought.read(client, folder)
    (inside / "out").symlink_to("../secret")
    with pytest.raises(UsageError, match=r"out is a symbolic link to \.\./secret, out of the folder that is sent"):
        brought.read("sh plain", str(inside))


def test_a_link_in_a_circle_is_told_and_one_to_nothing_is_kept(tmp_path: Path) -> None:
    """Neither ends in an error of Python's."""
    _file(tmp_path / "lock.py")
    (tmp_path / "later").symlink_to("made-at-the-start")
    assert brought.read("lock.py", str(tmp_path)).files["later"] == Sent(link="made-at-the-start")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(UsageError, match="circle is a symbolic link that leads to itself"):
        brought.read("lock.py", str(tmp_path))


def test_names_that_are_no_text_are_sent_as_they_are(tmp_path: Path) -> None:
    """A folder of another machine may have names in no encoding."""
    _file(tmp_path / "lock.py")
    _file(tmp_path / os.fsdecode(b"caf\xe9.txt"), "x")
    found = brought.read("lock.py", str(tmp_path))
    assert len(found.digest) == 12
    with tarfile.open(fileobj=io.BytesIO(sending.archive(found.files))) as tar:
        assert os.fsdecode(b"caf\xe9.txt") in tar.getnames()


def test_a_folder_that_is_too_large_is_told_before_any_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what takes the most; a file of its own likewise; and too many files."""
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(brought.MOST_BYTES + 1)
    _file(tmp_path / "lock.py")
    with pytest.raises(UsageError, match=r"has 256\.0 MiB, and at most 256\.0 MiB.*largest file: huge\.bin, 256"):
        brought.read("lock.py", str(tmp_path))
    with pytest.raises(UsageError, match=r"at most 256\.0 MiB are sent"):
        brought.read(f"{tmp_path}/huge.bin")
    monkeypatch.setattr(brought, "MOST_FILES", 1)
    with pytest.raises(UsageError, match="has 2 files, and at most 1 are sent"):
        brought.read("lock.py", str(tmp_path))


def test_the_digest_is_another_one_for_whatever_is_run_otherwise() -> None:
    """Content, mode, place, link, command and packages; the same files in another order are the same."""
    one = Brought(("./a",), {"a": Sent(b"1", True), "b": Sent(b"2")}, ("redis",))
    assert one.digest == Brought(("./a",), {"b": Sent(b"2"), "a": Sent(b"1", True)}, ("redis",)).digest
    others = [
        Brought(("./a", "-v"), one.files, one.packages),
        Brought(one.command, one.files, ("redis==5",)),
        Brought(one.command, {**one.files, "b": Sent(b"3")}, one.packages),
        Brought(one.command, {**one.files, "b": Sent(b"2", True)}, one.packages),
        Brought(one.command, {**one.files, "b": Sent(link="a")}, one.packages),
        Brought(one.command, {"a": one.files["a"], "c": Sent(b"2")}, one.packages),
    ]
    assert len({each.digest for each in [one, *others]}) == 7


def test_paths_are_relative_to_where_they_were_written(tmp_path: Path) -> None:
    """Those of a file to its folder; a name, and a program of the node, are no paths."""
    assert brought.placed("../a.py -v", None, tmp_path / "b") == (f"{tmp_path}/a.py -v", None)
    assert brought.placed("java -jar x.jar", "c", tmp_path) == ("java -jar x.jar", f"{tmp_path}/c")
    assert brought.placed("redis", None, tmp_path) == ("redis", None)
    assert brought.placed("mylock --fast", None, tmp_path) == ("mylock --fast", None)


def test_images_with_packages_are_known_by_their_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noted once, they have a recipe upon the contender's, are listed beside the others, and can be forgotten."""
    from harness.images import recipes

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name = images.note(["redis==5.0.1"])
    assert name == images.note(["redis==5.0.1"]) != images.name_of(["redis==5.0.2"])
    recipe = recipes.load_all()[name]
    assert recipe.parent is not None
    assert recipe.parent.name == "contender"
    assert recipe.files["requirements.txt"][0] == b"redis==5.0.1\n"
    assert f"--target {images.FOLDER} " in recipe.files["Dockerfile"][0].decode()
    assert name in recipes.every(recipes.load_all())
    assert name not in recipes.names()
    images.forget()
    assert name not in recipes.load_all()
