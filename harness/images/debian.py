"""A Debian root file system without a registry: made by debootstrap from the mirror that this host itself uses.

Nothing is installed on the host. Where the program debootstrap or Debian's keys are missing, their packages are fetched
with apt into a temporary folder, unpacked and used from there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import docker

from harness.errors import RuntimeUnavailable

SUITE = "trixie"

_POLL_SECONDS = 0.1

# A new image is needed when one of these changes.
_INCLUDE = "ca-certificates"
_LEFT_OUT = ("./var/cache/apt/*", "./var/lib/apt/lists/*", "./var/log/*", "./proc/*", "./sys/*", "./dev/*")

RECIPE = f"{SUITE} minbase {_INCLUDE} 1"
"""What the image is made of; goes into its tag."""

_KEYRINGS = Path("/usr/share/keyrings")

_WGET = """#!{python}
# Stands in for wget: `wget [switches] -O FILE URL` is all that debootstrap asks of it.
import shutil, sys, urllib.request
target = sys.argv[sys.argv.index("-O") + 1]
try:
    with urllib.request.urlopen(sys.argv[-1], timeout=60) as answer, open(target, "wb") as file:
        shutil.copyfileobj(answer, file)
except OSError as error:
    sys.exit(f"{{sys.argv[-1]}}: {{error}}")
"""


def bootstrap(
    client: docker.DockerClient, repository: str, tag: str, labels: dict[str, str], stop: threading.Event
) -> str:
    """Makes the root file system and imports it as `repository:tag`. Ends early, with an error, once `stop` is set.

    Returns:
        what it was made from, in words (suite and mirror).

    Raises:
        RuntimeUnavailable: this host can't do it; says why and what to do instead.
    """
    if os.geteuid() != 0:
        raise RuntimeUnavailable(
            "no registry answers and bootstrapping Debian needs root: run `sudo fencepost images`, or name a Debian "
            "image that Docker already has with --image debian=REFERENCE"
        )
    with tempfile.TemporaryDirectory(prefix="fencepost-debian-") as name:
        work = Path(name)
        root = work / "root"
        tools = _Tools(work)
        mirrors = _mirrors()
        mirror = mirrors.get("main")
        command = [*_private_mounts(), tools.debootstrap(), "--variant=minbase", f"--include={_INCLUDE}"]
        command += [f"--keyring={tools.keyring()}", SUITE, str(root)]
        # Without a mirror debootstrap uses its own default; the script is named last, so that then it can't be named.
        command += [mirror, tools.script()] if mirror else []
        _run(command, tools.environment(), work / "output", root / "debootstrap" / "debootstrap.log", stop)
        _write_sources(root, mirrors)
        _import(client, root, repository, tag, labels)
    return f"Debian {SUITE} by debootstrap from {mirror or 'its default mirror'}"


def _run(command: list[str], environment: dict[str, str], output: Path, log: Path, stop: threading.Event) -> None:
    """Runs debootstrap in a process group of its own, so that all of it can be ended."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    try:
        while process.poll() is None:
            if stop.wait(_POLL_SECONDS):
                raise RuntimeUnavailable("bootstrapping Debian was interrupted")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        text = "".join(path.read_text(errors="replace") for path in (log, output) if path.is_file())
        tail = "\n".join(text.splitlines()[-15:])
        raise RuntimeUnavailable(f"debootstrap failed with exit code {process.returncode}; its last lines:\n{tail}")


class _Tools:
    """debootstrap, its keys and wget: the host's own where it has them, else unpacked into the work folder."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._unpacked = work / "tools"
        self._share: Path | None = None

    def debootstrap(self) -> str:
        found = shutil.which("debootstrap", path=_search_path())
        if found:
            return found
        self._fetch("debootstrap")
        self._share = self._unpacked / "usr/share/debootstrap"
        return str(self._unpacked / "usr/sbin/debootstrap")

    def script(self) -> str:
        """The suite's script; an older debootstrap doesn't know the suite, but all newer ones are like sid."""
        scripts = (self._share or Path("/usr/share/debootstrap")) / "scripts"
        return SUITE if (scripts / SUITE).exists() else str(scripts / "sid")

    def keyring(self) -> Path:
        """Debian's archive keys, those of the suite among them."""
        if not any(_KEYRINGS.glob(f"debian-archive-{SUITE}-*")):
            self._fetch("debian-archive-keyring")
        for folder in (self._unpacked / _KEYRINGS.relative_to("/"), _KEYRINGS):
            for suffix in ("gpg", "pgp"):
                if (file := folder / f"debian-archive-keyring.{suffix}").exists():
                    return file
        raise RuntimeUnavailable("Debian's archive keys are missing: install the package debian-archive-keyring")

    def environment(self) -> dict[str, str]:
        path = _search_path()
        if not shutil.which("wget", path=path):
            wget = self._work / "bin" / "wget"
            wget.parent.mkdir(exist_ok=True)
            wget.write_text(_WGET.format(python=sys.executable))
            wget.chmod(0o755)
            path = f"{wget.parent}:{path}"
        environment = {**os.environ, "PATH": path, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        # A wget of the host's must not read switches meant for people, and TMPDIR doesn't exist inside the new root.
        environment.pop("TMPDIR", None)
        if self._share:
            environment["DEBOOTSTRAP_DIR"] = str(self._share)
        return environment

    def _fetch(self, package: str) -> None:
        if not shutil.which("apt-get"):
            raise RuntimeUnavailable(
                f"no registry answers and this host has no {package}, nor apt-get to fetch it with: install {package}, "
                "or name a Debian image that Docker already has with --image debian=REFERENCE"
            )
        folder = self._work / "packages"
        folder.mkdir(exist_ok=True)
        # Package lists of our own: those of the host may be missing or old, and aren't ours to refresh.
        state, cache = self._work / "apt-state", self._work / "apt-cache"
        (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        options = [
            "-qq",
            "-o",
            f"Dir::State::lists={state}/lists",
            "-o",
            f"Dir::Cache={cache}",
            "-o",
            "APT::Sandbox::User=root",
        ]
        for arguments in (["update"], ["download", package]):
            done = subprocess.run(
                ["apt-get", *options, *arguments], cwd=folder, capture_output=True, text=True, check=False
            )
        packages = sorted(folder.glob(f"{package}_*.deb"))
        if done.returncode != 0 or not packages:
            raise RuntimeUnavailable(f"can't fetch the package {package} with apt: {done.stderr.strip()}")
        subprocess.run(["dpkg-deb", "--extract", str(packages[-1]), str(self._unpacked)], check=True)


def _search_path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"


def _private_mounts() -> list[str]:
    """Prefix that keeps debootstrap's mounts to itself, so that none outlives it, however it ends."""
    works = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
    return ["unshare", "--mount"] if works else []


def _mirrors() -> dict[str, str]:
    """Debian mirrors of the host's own apt: `main` and `security`, each where it has one. Empty on other systems."""
    if not shutil.which("apt-get"):
        return {}
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        return {}
    codename = release["VERSION_CODENAME"].strip('"')
    lines = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    wanted = {f"{codename} main": "main", f"{codename}-security main": "security"}
    found: dict[str, str] = {}
    for line in lines:
        where, _, address = line.rpartition(" ")
        if where in wanted and address.startswith(("http:", "https:", "file:")):
            found.setdefault(wanted[where], address.rstrip("/"))
    return found


def _write_sources(root: Path, mirrors: dict[str, str]) -> None:
    sources = root / "etc/apt/sources.list"
    line = sources.read_text().splitlines()[0]
    if "main" in mirrors:
        line = f"deb {mirrors['main']} {SUITE} main"
    lines = [line, line.replace(f" {SUITE} ", f" {SUITE}-updates ")]
    if "security" in mirrors:
        lines.append(f"deb {mirrors['security']} {SUITE}-security main")
    sources.write_text("\n".join(lines) + "\n")


def _import(client: docker.DockerClient, root: Path, repository: str, tag: str, labels: dict[str, str]) -> None:
    excludes = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
    changes = [f"LABEL {key}={value}" for key, value in labels.items()] + ['CMD ["bash"]']
    with subprocess.Popen(["tar", "-C", str(root), *excludes, "-c", "."], stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        client.api.import_image_from_stream(tar.stdout, repository=repository, tag=tag, changes=changes)
    if tar.returncode != 0:
        client.api.remove_image(f"{repository}:{tag}")
        raise RuntimeUnavailable(f"tar failed with exit code {tar.returncode} while packing {root}")
