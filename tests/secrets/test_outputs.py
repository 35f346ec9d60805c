"""Whole trials with secrets in them, told by everybody who can: not a byte of them in anything that is written."""

from __future__ import annotations

import base64
import io
import json
import os
import secrets
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import docker
import pytest

from harness import images
from harness.redaction import MARK

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

PLUG_INS = Path(__file__).parent / "leaky"
"""Installed as a package of somebody else's: a workload and two systems."""
CONTENDERS = 2
SHORT = (
    *("--contenders", str(CONTENDERS), "--warmup", "0.5", "--duration", "1.5", "--recovery", "0.5"),
    *("--min-grants", "1", "--min-handovers", "1"),
)


def fresh(name: str) -> str:
    """A secret that stands nowhere else, with all that is escaped anywhere."""
    return f"{name} \"q'\\/<&>%+=ü {secrets.token_urlsafe(24)}"


PASSWORD, API_KEY, COLOUR = fresh("Pw1"), fresh("Ak2"), fresh("Co3")


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def contender(engine: docker.DockerClient) -> Iterator[str]:
    """An image of contenders that has the workload in it."""
    usual = images.resolve(engine, ["contender"])["contender"].reference
    tag = f"fencepost-test/leaky:{secrets.token_hex(4)}"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, text in {
            "Dockerfile": f"FROM {usual}\nCOPY leaky.py /opt/fencepost/\n",
            "leaky.py": (PLUG_INS / "leaky.py").read_text(),
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    context.seek(0)
    engine.images.build(fileobj=context, custom_context=True, tag=tag, rm=True)
    yield tag
    engine.images.remove(tag, force=True)


class Fencepost:
    """Runs the command where the plug-ins are installed, with secrets in its environment."""

    def __init__(self, results: Path) -> None:
        self.results = results

    def start(self, *words: str, **env: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(filter(None, [str(PLUG_INS), os.environ.get("PYTHONPATH", "")]))
        return subprocess.Popen(
            [sys.executable, "-m", "harness", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path, **env},
        )

    def run(self, *words: str, **env: str) -> tuple[int, bytes]:
        """The exit code, and all that was said."""
        process = self.start(*words, **env)
        said, _ = process.communicate(timeout=480)
        return process.returncode, said


@pytest.fixture
def fencepost(tmp_path: Path) -> Fencepost:
    return Fencepost(tmp_path / "results")


def shapes(secret: str) -> dict[str, bytes]:
    """What must not be found: the secret, and pieces of it that are long enough to be of use, in every shape."""
    random = secret.rpartition(" ")[2]
    found = {
        "plain": secret,
        "json": json.dumps(secret)[1:-1],
        "unicode json": json.dumps(secret, ensure_ascii=False)[1:-1],
        "repr": repr(secret)[1:-1],
        "url": quote(secret, safe=""),
        "base64": base64.b64encode(secret.encode()).decode().rstrip("=")[:-1],
        "basic": base64.b64encode(f"me:{secret}".encode()).decode().rstrip("=")[4:-1],
        "hex": secret.encode().hex(),
        "head": random[:12],
        "tail": random[-12:],
    }
    return {name: shape.encode() for name, shape in found.items()}


def assert_untold(outputs: Mapping[str, bytes], *given: str) -> None:
    """None of the secrets in any output, by its name."""
    told = [
        f"{secret[:3]} as {shape} in {name}: …{data[max(0, data.find(needle) - 60) : data.find(needle)]!r}"
        for secret in given
        for shape, needle in shapes(secret).items()
        for name, data in outputs.items()
        if needle in data
    ]
    assert not told, "\n".join(told)


def written(folder: Path) -> dict[str, bytes]:
    """Every file of the results by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_trial_tells_no_secret(engine: docker.DockerClient, fencepost: Fencepost, contender: str) -> None:
    """Given by the environment, in the open, and marked; printed, raised and sent by a workload in six shapes, in two
    writes, and cut at the end of a line. Nor has any process in a node one on its command line, nor a container in what
    `docker inspect` shows.
    """
    results = fencepost.results
    process = fencepost.start(
        *("run", "redis", "--system-option", "password=env:THE_REDIS_PASSWORD", "--workload", "leaky"),
        *("--workload-option", f"api_key={API_KEY}", "--workload-option", f"colour={COLOUR}", "--secret", "colour"),
        *("--image", f"contender={contender}", "--results", str(results), "--name", "t", *SHORT),
        *("--duration", "5"),  # within which all its containers are looked at
        THE_REDIS_PASSWORD=PASSWORD,
    )
    seen: dict[str, bytes] = {}
    said = refused = b""

    def listen() -> None:
        nonlocal said
        assert process.stdout is not None
        said = process.stdout.read()

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        history, deadline = results / "t" / "history.jsonl", time.monotonic() + 120
        while process.poll() is None and not (history.exists() and history.read_bytes().count(b"\n") > 20):
            assert time.monotonic() < deadline, "no trial within two minutes"
            time.sleep(0.05)
        site = json.loads((results / "t" / "trial.json").read_text())["site"]
        for container in engine.containers.list(filters={"label": f"fencepost.site={site}"}):
            seen[f"inspect {container.name}"] = json.dumps(container.attrs, ensure_ascii=False).encode()
            seen[f"ps {container.name}"] = json.dumps(container.top(), ensure_ascii=False).encode()
            if container.labels["fencepost.part"] == "service" and container.labels["fencepost.node"] == "n1":
                refused = container.exec_run(["redis-cli", "ping"]).output
        seen[".lock"] = (results / "t" / ".lock").read_bytes()
        assert process.wait(timeout=480) == 0, (results / "t" / "trial.json").read_text()
    finally:
        process.kill()
        listener.join()
    files = written(results)
    outputs = {**files, **seen, "the terminal": said}
    assert_untold(outputs, PASSWORD, API_KEY, COLOUR)

    assert len(seen) >= 2 * (3 + CONTENDERS) + 1
    assert b"NOAUTH" in refused, "it needs the password"
    assert any(b"redis-server" in data for name, data in seen.items() if name.startswith("ps"))
    trial = json.loads(files["t/trial.json"])
    assert trial["config"]["system_options"] == {"password": "env:THE_REDIS_PASSWORD"}
    assert trial["config"]["workload_options"]["api_key"] == "env:FENCEPOST_SECRET_API_KEY"
    assert trial["system"]["password"] == "env:THE_REDIS_PASSWORD"
    assert trial["contenders"]["0"]["hello"]["parameters"]["colour"] == MARK
    for told in (trial["repeat"], said.decode()):
        assert "--system-option password=env:THE_REDIS_PASSWORD" in told
        assert "--workload-option colour=env:FENCEPOST_SECRET_COLOUR" in told
    assert b"needs:  THE_REDIS_PASSWORD in the environment\n" in said
    log = files["t/logs/c1/contender.log"].decode()
    for line in ("plain: ***", 'json: {"error": "***"}', "url: redis://me:***@n1", "in two writes: ***"):
        assert log.count(line + "\n") == 3, line
    errors = [json.loads(line).get("error", "") for line in files["t/history.jsonl"].splitlines()[1:]]
    assert errors.count("as plain: ***") == 3 * CONTENDERS
    assert errors.count("cut: " + "x" * 385 + MARK) == 3 * CONTENDERS
    assert b"Ready to accept connections" in files["t/logs/n1/service.log"]


def test_a_matrix_tells_no_secret(fencepost: Fencepost, contender: str, tmp_path: Path) -> None:
    """Two cells side by side, with secrets in its file, marked in its file, and from the environment."""
    file = tmp_path / "mine.toml"
    file.write_text(
        f"""
        [defaults]
        workload = "leaky"
        contenders = {CONTENDERS}
        warmup = 0.5
        duration = 1.5
        recovery = 0.5
        min_grants = 1
        min_handovers = 1
        secrets = ["colour"]
        images = {{ contender = "{contender}" }}
        system_options = {{ password = {json.dumps(PASSWORD)} }}
        workload_options = {{ api_key = "env:THE_API_KEY", colour = {json.dumps(COLOUR)} }}
        [axes]
        system = ["redis"]
        guarded = [true, false]
        """
    )
    words = ("matrix", str(file), "-j", "2", "--results", str(fencepost.results), "--name", "m")
    code, said = fencepost.run(*words, THE_API_KEY=API_KEY)
    assert code == 0, said.decode()
    files = written(fencepost.results)
    assert_untold({**files, "the terminal": said}, PASSWORD, API_KEY, COLOUR)
    assert len(json.loads(files["m/matrix.json"])["cells"]) == 2
    assert {"m/index.html", "m/redis-none-leaky-naive/report.html", "m/redis-none-leaky-guarded/history.jsonl"} <= set(
        files
    )
    assert b"needs:  FENCEPOST_SECRET_PASSWORD in the environment (not set yet" in said
    code, said = fencepost.run(*words[:2], "--list", THE_API_KEY=API_KEY)
    assert code == 0, said.decode()
    assert said.count(b"--system-option password=env:FENCEPOST_SECRET_PASSWORD") == 2
    assert_untold({"the list": said}, PASSWORD, API_KEY, COLOUR)


FAILING = {
    "raises": ("redis", "gave up: RuntimeError: no login with ***"),
    "babbles": ("redis", "printed what is no event"),
    "not": ("shows", "RuntimeError: no version with {'password': '***'}"),
}
"""How a trial fails -> on which system, and the words for it."""


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, contender: str) -> dict[str, tuple[int, bytes, dict[str, bytes]]]:
    """How a trial fails -> its exit code, all that was said, and all that was written. They run side by side."""
    runs = {dies: Fencepost(tmp_path_factory.mktemp(dies) / "results") for dies in FAILING}
    processes = {
        dies: run.start(
            *("run", FAILING[dies][0], "--system-option", f"password={PASSWORD}", "--workload", "leaky"),
            *("--workload-option", f"dies={dies}", "--image", f"contender={contender}"),
            *("--results", str(run.results), "--name", "t", *SHORT),
        )
        for dies, run in runs.items()
    }
    try:
        said = {dies: process.communicate(timeout=480)[0] for dies, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    return {dies: (processes[dies].returncode, said[dies], written(run.results)) for dies, run in runs.items()}


@pytest.mark.parametrize("dies", FAILING)
def test_a_trial_that_fails_tells_none_either(
    failed: dict[str, tuple[int, bytes, dict[str, bytes]]], dies: str
) -> None:
    """Tracebacks of a contender, lines that are refused, tracebacks of the harness itself."""
    system, words = FAILING[dies]
    code, said, files = failed[dies]
    assert_untold({**files, "the terminal": said}, PASSWORD)
    assert code == 4, said.decode()
    assert words in json.loads(files["t/trial.json"])["error"]
    traces = files["t/harness.log"] if system == "shows" else files["t/logs/c0/contender.log"]
    assert MARK.encode() in traces
    assert dies == "babbles" or b"Traceback" in traces


def test_an_error_before_anything_has_begun_tells_none(fencepost: Fencepost) -> None:
    """A traceback on the terminal is all that there is, or a sentence about an option that can't be."""
    words = ("run", "breaks", "--results", str(fencepost.results), "--system-option")
    code, said = fencepost.run(*words, "password=env:THE_REDIS_PASSWORD", THE_REDIS_PASSWORD=PASSWORD)
    assert_untold({"the terminal": said}, PASSWORD)
    assert code == 4
    assert b"Traceback" in said
    assert b"no plan with ['***'" in said
    code, said = fencepost.run(*words, f"persistence={PASSWORD}", "--secret", "persistence")
    assert code == 2
    assert b"'persistence' must be one of" in said
    assert_untold({"the terminal": said}, PASSWORD)
    assert not fencepost.results.exists()
