"""One call of `stockade run`: how it is asked, and what came of it."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence, Union

# The command has no part in what Stockade says with this status: nothing was started.
NOT_STARTED = 125
# Of events a client reads at once; a file of more is cut to its first, and Result.events_cut is set.
MAX_EVENT_BYTES = 64 << 20


class SandboxError(Exception):
    """Nothing was started: no agent, no such policy, no isolation. The message says what to do."""


class ToolFailed(Exception):
    """run(check=True): the tool ended with another status than 0, or was ended. `result` has all of it."""

    def __init__(self, result: "Result"):
        super().__init__(result.reason or f"exit status {result.exit_code}")
        self.result = result


@dataclass(frozen=True)
class Refusal:
    """What the policy refused, or would have under `mode: observe`."""

    code: str  # stable, e.g. "exec.denied"
    reason: str  # a sentence
    object: str  # path, address, operation
    lock: str  # who refused: bpf, landlock, seccomp, mount, dac
    count: int
    suggestion: str  # the line of the policy that would allow it; empty where none can
    dry_run: bool  # it happened: mode: observe


@dataclass(frozen=True)
class Result:
    """How a run ended. Everything that the tool wrote is data of a stranger: `stdout`, `stderr` and names in `refusals`."""

    exit_code: int  # the tool's own; 128+n: ended by signal n; 137 with `reason`: by its policy or its timeout
    stdout: bytes
    stderr: bytes  # the tool's, and what Stockade has to say behind it
    end: str  # "exited", "policy", "timeout" ...
    reason: str  # why it was ended; empty where it ended itself
    sandbox_id: str
    refusals: Sequence[Refusal] = field(default_factory=tuple)
    events: Sequence[Mapping[str, Any]] = field(default_factory=tuple)  # stockade.v1.Event; docs/events.md
    events_cut: bool = False
    notes: Sequence[str] = field(default_factory=tuple)
    raw: Mapping[str, Any] = field(default_factory=dict)  # --result, whole

    @property
    def ok(self) -> bool:
        """The tool ended by itself, with status 0."""
        return self.exit_code == 0 and self.end == "exited"

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")


class Sandbox:
    """A description of sandboxes: each run() makes a fresh one and removes it.

    policy: a name, or a file (has a "/" or ends in .yaml). inputs: shown read-only at /in. outputs: regular files of /out are copied
    there at the end. timeout in seconds. binary and config: which `stockade` is asked, and with which configuration."""

    def __init__(
        self,
        policy: str,
        *,
        session: str = "",
        tool: str = "",
        trace: str = "",
        cause: str = "",
        labels: Optional[Mapping[str, str]] = None,
        inputs: Union[str, os.PathLike, None] = None,
        outputs: Union[str, os.PathLike, None] = None,
        timeout: Optional[float] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: str = "",
        flags: Sequence[str] = (),
        binary: str = "stockade",
        config: Union[str, os.PathLike, None] = None,
    ):
        self._before = [binary] + (["--config", os.fspath(config)] if config is not None else [])
        words = ["run", "-q", "--policy", policy]
        for flag, value in (("--session", session), ("--tool", tool), ("--trace", trace), ("--cause", cause), ("--workdir", workdir)):
            if value:
                words += [flag, value]
        for key, value in (labels or {}).items():
            words += ["--label", f"{key}={value}"]
        for key, value in (env or {}).items():
            words += ["--env", f"{key}={value}"]
        for flag, path in (("--in", inputs), ("--out", outputs)):
            if path is not None:
                words += [flag, os.fspath(path)]
        if timeout is not None:
            if timeout <= 0:
                raise ValueError("timeout is in seconds, and more than 0")
            words += ["--timeout", f"{max(1, round(timeout * 1000))}ms"]
        self._words = words + list(flags)

    def run(self, command: Sequence[str], *, input: Union[bytes, str, None] = None, check: bool = False) -> Result:
        """Runs the command in a fresh sandbox and waits for its end. Raises SandboxError where nothing was started."""
        if isinstance(command, (str, bytes)) or not command:
            raise TypeError("command is a list of words: there is no shell that would split a string")
        with tempfile.TemporaryDirectory(prefix="stockade-") as scratch:
            result_path, events_path = pathlib.Path(scratch, "result.json"), pathlib.Path(scratch, "events.jsonl")
            argv = self._before + self._words + ["--result", str(result_path), "--events", str(events_path), "--", *map(str, command)]
            data = input.encode() if isinstance(input, str) else (input or b"")
            try:
                done = subprocess.run(argv, input=data, capture_output=True, check=False)
            except FileNotFoundError as error:
                raise SandboxError(f"{argv[0]}: not found; is Stockade installed?") from error
            result = _read(done, result_path, events_path)
        if check and not result.ok:
            raise ToolFailed(result)
        return result


def _read(done: "subprocess.CompletedProcess[bytes]", result_path: pathlib.Path, events_path: pathlib.Path) -> Result:
    raw: Mapping[str, Any] = {}
    try:
        raw = json.loads(result_path.read_text())
    except (OSError, ValueError):
        pass  # told below: a run without a result was none
    said = done.stderr.decode("utf-8", "replace").strip()
    if not raw or raw.get("end") in ("failed", "refused", "unfinished") or (done.returncode == NOT_STARTED and "end" not in raw):
        raise SandboxError(raw.get("reason") or said or f"stockade run ended with status {done.returncode}")
    events, cut = _events(events_path)
    return Result(
        exit_code=done.returncode if done.returncode >= 0 else 128 - done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
        end=raw.get("end", ""),
        reason=raw.get("reason", ""),
        sandbox_id=raw.get("id", ""),
        refusals=tuple(_refusal(one) for one in raw.get("summary", {}).get("refusals", [])),
        events=events,
        events_cut=cut,
        notes=tuple(raw.get("notes", [])),
        raw=raw,
    )


def _refusal(one: Mapping[str, Any]) -> Refusal:
    return Refusal(
        code=one.get("code", ""),
        reason=one.get("reason", ""),
        object=one.get("object", ""),
        lock=one.get("lock", ""),
        count=int(one.get("count", 1)),
        suggestion=one.get("suggestion", ""),
        dry_run=bool(one.get("dry_run", False)),
    )


def _events(path: pathlib.Path) -> "tuple[Sequence[Mapping[str, Any]], bool]":
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_EVENT_BYTES + 1)
    except FileNotFoundError:
        return (), False
    cut = len(text) > MAX_EVENT_BYTES
    lines = text[:MAX_EVENT_BYTES].split(b"\n")[: -1 if cut else None]
    return tuple(json.loads(line) for line in lines if line), cut
