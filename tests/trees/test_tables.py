"""Tables: the Dockerfiles are what they say, and what can't be meant is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import ConfigError, UsageError
from harness.images import debian, recipes, table
from harness.images.dockerfile import dockerfile
from harness.images.maker import DEBIAN_OFFICIAL
from harness.images.table import Folder, Step, User, script


@pytest.mark.parametrize("name", sorted(path.parent.name for path in recipes.docker_folder().glob("*/Dockerfile")))
def test_each_dockerfile_is_what_its_table_says(name: str) -> None:
    """`fencepost images --dockerfile NAME` writes it; whoever changes one of the two changes both."""
    recipe = recipes.load_all()[name]
    assert recipe.table is not None
    assert (recipe.folder / "Dockerfile").read_text() == dockerfile(recipe.table, recipes.REPOSITORY)
    for step in recipe.table.steps:
        for source in step.files:
            known = [*recipe.files, "ca/README"]
            assert any(path == source or (source.endswith("/") and path.startswith(source)) for path in known), source


def test_the_lowest_image_stands_on_what_the_trees_are_made_of() -> None:
    """One release of Debian, whether its image is pulled, imported or made into a tree."""
    base = recipes.load_all()["base"].table
    assert base is not None
    assert (base.on, base.below) == (DEBIAN_OFFICIAL, None)
    assert debian.RECIPE.startswith(table.SUITE)


def test_a_table_is_no_source_of_its_own() -> None:
    """All that it says stands in the Dockerfile: a comment in it makes no image anew."""
    assert table.FILE not in recipes.load_all()["etcd"].files


def test_a_step_does_one_thing_after_the_other() -> None:
    """What comes later may count on what came before: packages bring users, users own folders."""
    step = Step(
        packages=("a", "b"),
        unpack=("c",),
        remove=("/d*",),
        users=(User("e", 7, "/home/e"),),
        folders=(Folder("/f", "e", "0700"), Folder("/g")),
        links={"/h": "/i"},
        run="j \\\n    k\nl",
        version="m",
    )
    assert script(step) == [
        "install-packages a b",
        "install-packages --unpack c",
        "rm -rf /d*",
        "groupadd --system --gid 7 e",
        "useradd --system --uid 7 --gid e --home-dir /home/e --no-create-home e",
        "install -d -o e -g e -m 0700 /f",
        "install -d /g",
        "ln -s /i /h",
        "j \\\n    k",
        "l",
        'version="$(m)"',
        'printf "%s\\n" "$version" > /etc/fencepost-version',
    ]
    assert script(Step(files={"x": "/x"})) == []


TABLE = """
about = "Two lines.\\nOf words."
on = "low"
official = "thing:1"
[[step]]
files = { "a" = "/x/", "b" = "/x/", "c/" = "/y/" }
settings = ["PIP_INDEX_URL"]
run = "one"
[config]
env = { PLAIN = "a:b", SPACED = 'say "$HOME" \\' }
user = "1000"
stop_signal = "SIGINT"
command = ["a b", "c"]
"""


def test_a_dockerfile_quotes_what_the_builder_would_expand(tmp_path: Path) -> None:
    """Values of ENV come out as they stand in the table; commands are words, not a line for a shell."""
    (tmp_path / table.FILE).write_text(TABLE)
    found = table.read(tmp_path)
    assert found is not None
    lines = dockerfile(found, "ours").splitlines()
    assert lines[1:] == [
        "# Two lines.",
        "# Of words.",
        "# official: thing:1",
        "ARG BASE=ours/low",
        "FROM ${BASE}",
        "ARG PIP_INDEX_URL",
        "COPY a b /x/",
        "COPY c/ /y/",
        "RUN one",
        "ENV PLAIN=a:b \\",
        '    SPACED="say \\"\\$HOME\\" \\\\"',
        "USER 1000",
        "STOPSIGNAL SIGINT",
        f"CMD {json.dumps(['a b', 'c'])}",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("on = ", "Invalid value"),
        ("about = 'x'", "on: is missing"),
        ("on = 1", "on: must be a string"),
        ("on = 'x'\nstep = ['y']", "step: must be a list of tables"),
        ("on = 'x'\n[[step]]\npackage = ['y']", r"step\[0\].package: unknown key \(known: .*packages"),
        ("on = 'x'\n[[step]]\npackages = 'y'", r"step\[0\].packages: must be a list of strings"),
        ("on = 'x'\n[[step]]\npackages = ['y; rm -rf /']", r"step\[0\].packages: 'y; rm -rf /' is no package's name"),
        ("on = 'x'\n[[step]]\nusers = [{ name = 'y' }]", r"step\[0\].users.id: is missing"),
        ("on = 'x'\n[[step]]\nfolders = [{ owner = 'y' }]", r"step\[0\].folders.path: is missing"),
        ("on = 'x'\n[config]\nenv = { A = 1 }", "config.env: must be strings by name"),
        ("on = 'x'\n[[step]]\n[[version]]\nname = '1'\npackages = ['y']", "release: is missing"),
        ("on = 'x'\nrelease = '2'\n[[version]]\nname = '1'\npackages = ['y']", "step: is missing"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    """The error names the file and the key; a misspelt key is not passed over."""
    (tmp_path / table.FILE).write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        table.read(tmp_path)
    assert str(tmp_path / table.FILE) in str(caught.value)


def test_a_version_of_what_is_no_image() -> None:
    """The name is what is wrong with it; nothing is told of versions."""
    with pytest.raises(UsageError, match="unknown image 'etdc'; did you mean 'etcd'"):
        recipes.spelled("etdc@3.4.23")
    with pytest.raises(UsageError, match=r"etcd has no recipe for version '1' \(it has: 3"):
        recipes.spelled("etcd@1")


def test_the_mirror_is_the_one_that_this_hosts_own_apt_uses() -> None:
    """Told by what apt would fetch, on a machine that never fetched anything too; others' releases are not Debian's."""

    def uris(*where: str) -> str:
        files = ("InRelease", "main/binary-amd64/Packages.xz", "contrib/binary-amd64/Packages.xz")
        return "".join(f"'{each}/{file}' a_file_name 0 \n" for each in where for file in files)

    fresh = uris("http://one/debian/dists/bookworm")
    assert debian.mirrors_of("bookworm", fresh) == {"main": "http://one/debian"}
    others = uris("https://apt.example/dists/bookworm", "https://node.example/dists/nodistro")
    whole = uris(*(f"file:/srv/debian/dists/bookworm{suite}" for suite in ("", "-updates")))
    security = uris("http://two/security//dists/bookworm-security", "http://three/dists/trixie")
    assert debian.mirrors_of("bookworm", others + whole + security) == {
        "main": "file:/srv/debian",
        "security": "http://two/security",
    }
    assert debian.mirrors_of("forky", others + whole) == {}


def test_a_version_is_the_same_with_other_packages() -> None:
    """An image of its own, from the same files; the usual one is what it was, and comes first."""
    found = recipes.load_all()
    usual, other = found["etcd"], found["etcd-3.4.23"]
    assert recipes.versions("etcd") == [recipes.versions("etcd")[0], "3.4.23"]
    assert recipes.spelled("etcd@3.4.23") == other.name
    assert recipes.spelled(f"etcd@{recipes.versions('etcd')[0]}") == "etcd"
    assert other.table is not None
    assert usual.table is not None
    assert other.table.steps[0].packages == ("etcd-server/bookworm", "etcd-client/bookworm")
    assert other.table.steps[1:] == usual.table.steps[1:]
    assert other.files.keys() == usual.files.keys()
    assert other.digest != usual.digest
    assert other.files["Dockerfile"][0].decode() == dockerfile(other.table, recipes.REPOSITORY)
    assert other.name in recipes.every(recipes.load_all())
    assert other.name not in recipes.names()
