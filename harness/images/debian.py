"""Debian's root file system, made by mmdebstrap from packages, through the mirror that this host's own apt uses.

Nothing is installed on the host. Where mmdebstrap, Perl's modules or Debian's keys are missing, their packages are
fetched with apt into a temporary folder, unpacked and used from there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

import docker

from harness.errors import RuntimeUnavailable
from harness.images.chamber import TAIL_LINES, chambered, hint, run, search_path, why_not
from harness.images.table import SUITE

# A new image and a new tree are needed when one of these changes.
_INCLUDE = "ca-certificates"
_LEFT_OUT = ("./var/cache/apt/*", "./var/lib/apt/lists/*", "./var/log/*", "./proc/*", "./sys/*", "./dev/*")
# The folders stay: Java's package makes links in one.
_NO_MANUALS = (
    'find "$1"/usr/share/man "$1"/usr/share/locale -not -type d -delete && '
    'find "$1"/usr/share/doc -not -type d -not -name copyright -delete'
)

RECIPE = f"{SUITE} minbase {_INCLUDE} 3"
"""What it is made of; goes into the tag of an image and the digest of a tree."""

_KEYRINGS = Path("/usr/share/keyrings")
_PERL_MODULES = (
    "English",
    "Getopt::Long",
    "Pod::Usage",
    "File::Find",
    "Term::ANSIColor",
    "Math::BigInt",
    "Time::HiRes",
)


def lacks() -> str | None:
    """Why this machine lacks what making Debian takes, and what to install; None when it has it, or can fetch it."""
    path = search_path()
    lacking = [package for package in ("mmdebstrap", "perl") if not shutil.which(package, path=path)]
    if not lacking or (lacking == ["mmdebstrap"] and shutil.which("apt-get", path=path)):
        return None
    return f"install {' and '.join(lacking)}"


def bootstrap(
    client: docker.DockerClient, repository: str, tag: str, labels: dict[str, str], stop: threading.Event
) -> str:
    """Makes the root file system and imports it as `repository:tag`. Ends early, with an error, once `stop` is set.

    Without root all its files come to belong to root, whoever they should belong to.

    Returns:
        what it was made from, in words (suite and mirror).

    Raises:
        RuntimeUnavailable: this host can't do it; says why and what to do instead.
    """
    as_root = os.geteuid() == 0
    if not as_root and (reason := why_not()):
        raise RuntimeUnavailable(
            f"no registry answers and making Debian without root needs user namespaces: {reason}. Or run `sudo "
            "fencepost images`, or name a Debian image that Docker already has with --image debian=REFERENCE"
        )
    with tempfile.TemporaryDirectory(prefix="fencepost-debian-") as name:
        work = Path(name)
        told = make(work, work / "root", stop, pretend=not as_root)
        put(client, work / "root", repository, tag, labels, all_roots=not as_root)
    return told


def make(work: Path, target: Path, stop: threading.Event, *, pretend: bool) -> str:
    """Makes the root file system in the folder `target`, which isn't there yet.

    Args:
        work: a folder for what is needed meanwhile.
        pretend: as whoever this is, to whom all files belong in the end, in namespaces (`harness.images.chamber`); else
            as root of the machine.

    Returns:
        what it was made from, in words.

    Raises:
        RuntimeUnavailable: it can't be made, or `stop` was set.
    """
    tools = Tools(work, stop)
    mirrors = _mirrors()
    command = [tools.mmdebstrap(), "--mode=root", "--variant=minbase", "--format=directory", f"--include={_INCLUDE}"]
    command += [f"--keyring={tools.keyring()}", "--dpkgopt=force-unsafe-io", f"--customize-hook={_NO_MANUALS}"]
    if pretend:
        # Nobody but root is there for apt to become, and what it would mount can't be.
        command += ["--skip=chroot/mount", '--aptopt=APT::Sandbox::User "root"']
    command += [SUITE, str(target), *_sources(mirrors)]
    command = chambered(command, pretend=True) if pretend else [*_private_mounts(), *command]
    run(command, tools.environment(), stop, f"making Debian {SUITE} by mmdebstrap")
    return f"Debian {SUITE} by mmdebstrap from {mirrors.get('main', 'its default mirror')}"


class Tools:
    """mmdebstrap, what it needs of Perl, and Debian's keys: the host's own, else unpacked into the work folder."""

    def __init__(self, work: Path, stop: threading.Event) -> None:
        self._work, self._stop = work, stop
        self._unpacked = work / "tools"
        self._environment: dict[str, str] = {}

    def mmdebstrap(self) -> str:
        found = shutil.which("mmdebstrap", path=search_path())
        if not found:
            self._fetch("mmdebstrap")
            found = str(self._unpacked / "usr/bin/mmdebstrap")
        self._perl()
        return found

    def keyring(self) -> Path:
        """Debian's archive keys, those of the suite among them."""
        if not any(_KEYRINGS.glob(f"debian-archive-{SUITE}-*")):
            self._fetch("debian-archive-keyring")
        for folder in (self._unpacked / _KEYRINGS.relative_to("/"), _KEYRINGS):
            for suffix in ("gpg", "pgp"):
                if (file := folder / f"debian-archive-keyring.{suffix}").exists():
                    return file
        raise RuntimeUnavailable("Debian's archive keys are missing: install the package debian-archive-keyring")

    def environment(self) -> Mapping[str, str]:
        """For the tools: theirs are found first, and nothing of a user's own settings is."""
        # mmdebstrap calls a program beside it by its name.
        path = f"{self._unpacked}/usr/bin:{search_path()}"
        environment = {**os.environ, "PATH": path, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        environment.pop("TMPDIR", None)  # it doesn't exist inside the new root
        return {**environment, **self._environment}

    def _perl(self) -> None:
        """Debian's smallest Perl lacks modules that mmdebstrap uses; they are a package of their own."""
        perl = shutil.which("perl", path=search_path())
        if not perl:
            raise RuntimeUnavailable("making Debian by mmdebstrap needs Perl: install perl and mmdebstrap")
        modules = [f"-M{module}" for module in _PERL_MODULES]
        if subprocess.run([perl, *modules, "-e", "1"], capture_output=True, check=False).returncode == 0:
            return
        asked = subprocess.run([perl, "-e", 'printf "%vd", $^V'], capture_output=True, text=True, check=True)
        version = ".".join(asked.stdout.split(".")[:2])
        self._fetch(f"perl-modules-{version}")
        self._fetch(f"libperl{version}")
        folders = [self._unpacked / "usr/share/perl" / version, *self._unpacked.glob(f"usr/lib/*/perl/{version}")]
        self._environment["PERL5LIB"] = ":".join(str(folder) for folder in folders)

    def _fetch(self, package: str) -> None:
        if not shutil.which("apt-get"):
            raise RuntimeUnavailable(
                f"this host has no {package}, nor apt-get to fetch it with: install {package}; for Docker alone, name "
                "a Debian image that it already has with --image debian=REFERENCE"
            )
        folder = self._work / "packages"
        folder.mkdir(exist_ok=True)
        # Package lists of our own: those of the host may be missing or old, and aren't ours to refresh.
        state, cache = self._work / "apt-state", self._work / "apt-cache"
        fresh = not (state / "lists" / "partial").is_dir()
        (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        options = ["-qq", "-o", f"Dir::State::lists={state}/lists", "-o", f"Dir::Cache={cache}"]
        options += ["-o", "APT::Sandbox::User=root"]
        environment = {**os.environ, "PATH": search_path(), "LC_ALL": "C"}
        what = f"fetching the package {package} with apt"
        said = run(["apt-get", *options, "update"], environment, self._stop, what) if fresh else ""
        try:
            run(["apt-get", *options, "download", package], environment, self._stop, what, folder)
        except RuntimeUnavailable as error:
            # An update that reached nobody succeeds, and says so in its output alone.
            tail = "\n".join(said.strip().splitlines()[-TAIL_LINES:])
            raise RuntimeUnavailable(f"{error}\n{tail}\ninstall {package}, or mend that{hint(said)}") from error
        packages = sorted(folder.glob(f"{package}_*.deb"))
        subprocess.run(["dpkg-deb", "--extract", str(packages[-1]), str(self._unpacked)], check=True)


def _private_mounts() -> list[str]:
    """Prefix that keeps the mounts of making it to itself, so that none outlives it, however it ends."""
    works = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
    return ["unshare", "--mount"] if works else []


def _mirrors() -> dict[str, str]:
    """Debian mirrors of the host's own apt: `main` and `security`, each where it has one. Empty on other systems."""
    if not shutil.which("apt-get"):
        return {}
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        return {}
    # What it would fetch, without fetching it; `indextargets` knows nothing on a machine that never fetched anything.
    done = subprocess.run(["apt-get", "update", "--print-uris"], capture_output=True, text=True, check=True)
    return mirrors_of(release["VERSION_CODENAME"].strip('"'), done.stdout)


def mirrors_of(codename: str, uris: str) -> dict[str, str]:
    """The mirrors of Debian itself among what apt would fetch, for a release of this name.

    Others call their releases so, too, and have a component `main`; Debian's mirrors alone have the updates beside it.
    """
    found: dict[str, list[str]] = {}
    for address, suite in re.findall(r"^'((?:https?|file):\S+?)/+dists/([^/' ]+)/main/binary-", uris, re.MULTILINE):
        found.setdefault(suite, []).append(address)
    main = found.get(codename, [])
    updates = found.get(f"{codename}-updates", [])
    main.sort(key=lambda address: address not in updates)
    security = found.get(f"{codename}-security", [])
    return {name: each[0] for name, each in (("main", main), ("security", security)) if each}


def _sources(mirrors: Mapping[str, str]) -> list[str]:
    """Lines of apt's sources for the new root; none where mmdebstrap's own serve."""
    if "main" not in mirrors:
        return []
    lines = [f"deb {mirrors['main']} {suite} main" for suite in (SUITE, f"{SUITE}-updates")]
    if "security" in mirrors:
        lines.append(f"deb {mirrors['security']} {SUITE}-security main")
    return lines


def put(
    client: docker.DockerClient, root: Path, repository: str, tag: str, labels: dict[str, str], *, all_roots: bool
) -> None:
    """Imports a root file system as an image.

    Args:
        all_roots: all its files are to belong to root there, whoever they belong to here.
    """
    options = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
    options += ["--owner=0", "--group=0"] if all_roots else []
    changes = [f"LABEL {key}={value}" for key, value in labels.items()] + ['CMD ["bash"]']
    with subprocess.Popen(
        ["tar", "-C", str(root), "--numeric-owner", *options, "-c", "."], stdout=subprocess.PIPE
    ) as tar:
        assert tar.stdout is not None
        client.api.import_image_from_stream(tar.stdout, repository=repository, tag=tag, changes=changes)
    if tar.returncode != 0:
        client.api.remove_image(f"{repository}:{tag}")
        raise RuntimeUnavailable(f"tar failed with exit code {tar.returncode} while packing {root}")
