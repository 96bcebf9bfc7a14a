"""Run agent skills in skillbox sandboxes: one file, the standard library alone, Python 3.9 and later.

    import skillbox
    result = skillbox.run("skills/word-count", params={"text": "a b a"})
    print(result.result)

Several calls of one conversation share a sandbox, with what they leave in its files and running:

    with skillbox.Session("skills/notebook") as session:
        session.run(params={"do": "x = 1"})
        print(session.run(params={"do": "x + 1"}).result)

An exception says that skillbox could not be asked. Whatever the skill did, and what policy or host refused, is in the Result.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from typing import Any, Mapping, Optional, Sequence

__all__ = ["Result", "Session", "SkillboxError", "run"]


class SkillboxError(Exception):
    """skillbox could not be asked, its answer was not understood, or a session could not be started or stopped."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run came to: the envelope of `skillbox exec --json`."""

    id: str
    success: bool  # exited with 0
    verdict: str  # "exited", "timed_out", "refused", ...: see `skillbox exec --help`
    exit_code: int
    stdout: str
    stderr: str
    result: Any  # the JSON value that the skill answered with; None without
    error: Optional[Mapping[str, Any]]  # why it was refused or failed: message, file, line, hint
    denials: Sequence[Mapping[str, Any]]  # what the skill tried and was refused
    warnings: Sequence[str]
    duration_ms: float
    envelope: Mapping[str, Any]  # all of it


def run(
    bundle: "str | os.PathLike[str]",
    words: Sequence[str] = (),
    *,
    params: Any = None,
    policy: "str | os.PathLike[str] | None" = None,
    inputs: Optional[Mapping[str, "str | os.PathLike[str]"]] = None,
    output: "str | os.PathLike[str] | None" = None,
    entry: Optional[str] = None,
    timeout: Optional[float] = None,
    env: Optional[Mapping[str, str]] = None,
    mode: str = "auto",
    command: str = "skillbox",
) -> Result:
    """Run the skill in bundle, a directory, and wait for its end.

    words are appended to the command that policy or bundle name, or are the command. params becomes the JSON text that the skill reads;
    None is none. inputs are files that the skill finds in /input, paths by name; output is a directory that takes what it leaves in /output.
    timeout is in seconds, None is the policy's. env has the values of the names that the policy passes on, secrets included, besides those
    of this process. With mode "user" a service of your own keeps sandboxes ready. command is the program to ask.
    """
    line = [command, "exec", "--json", "--mode", mode]
    if policy is not None:
        line += ["--policy", os.fspath(policy)]
    return _call(line, os.fspath(bundle), words, params, inputs, output, entry, timeout, env)


class Session:
    """One sandbox for several calls, one at a time: what a call leaves in /tmp and running is there for the next.

    Policy and bundle are those of the start. A call that times out, is canceled or meets a limit ends the session; those after it are refused.
    idle, between two calls, and total are in seconds, None is 10 minutes and an hour. timeout is the most that a call may take. A service of
    your own holds it.
    """

    id: str

    def __init__(
        self,
        bundle: "str | os.PathLike[str]",
        *,
        policy: "str | os.PathLike[str] | None" = None,
        timeout: Optional[float] = None,
        idle: Optional[float] = None,
        total: Optional[float] = None,
        mode: str = "auto",
        command: str = "skillbox",
    ) -> None:
        self._command, self._mode = command, mode
        line = [command, "session", "start", "--json", "--mode", mode]
        if policy is not None:
            line += ["--policy", os.fspath(policy)]
        for name, seconds in (("--timeout", timeout), ("--idle", idle), ("--total", total)):
            if seconds is not None:
                line += [name, _milliseconds(seconds)]
        answer = _ask(line + ["--", os.fspath(bundle)], None, None)
        error = answer.get("error")
        if error is not None:
            where = f"{error['file']}:{error.get('line', 0)}: " if "file" in error else ""
            raise SkillboxError(where + error["message"])
        self.id = answer["session"]

    def run(
        self,
        words: Sequence[str] = (),
        *,
        params: Any = None,
        inputs: Optional[Mapping[str, "str | os.PathLike[str]"]] = None,
        output: "str | os.PathLike[str] | None" = None,
        entry: Optional[str] = None,
        timeout: Optional[float] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> Result:
        """Run one call, as the function run does; timeout is at most the session's."""
        line = [self._command, "session", "exec", "--json", "--mode", self._mode]
        return _call(line, self.id, words, params, inputs, output, entry, timeout, env)

    def stop(self) -> None:
        """End the session and every process of it; one that is over is no error."""
        done = _run([self._command, "session", "stop", "--mode", self._mode, self.id], None, None)
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode != 0 and " is over: " not in said and "knows no session" not in said and "no service runs" not in said:
            raise SkillboxError(said)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"


def _call(
    line: Sequence[str],
    whose: str,
    words: Sequence[str],
    params: Any,
    inputs: Optional[Mapping[str, "str | os.PathLike[str]"]],
    output: "str | os.PathLike[str] | None",
    entry: Optional[str],
    timeout: Optional[float],
    env: Optional[Mapping[str, str]],
) -> Result:
    line = [*line]
    if entry is not None:
        line += ["--entry", entry]
    if timeout is not None:
        line += ["--timeout", _milliseconds(timeout)]
    if output is not None:
        line += ["--output", os.fspath(output)]
    for name, path in (inputs or {}).items():
        line += ["--input", f"{os.fspath(path)}:{name}"]
    if params is not None:
        line += ["--params", "-"]
    envelope = _ask([*line, whose, "--", *words], None if params is None else json.dumps(params).encode(), env)
    try:
        return Result(
            envelope=envelope,
            **{field.name: envelope[field.name] for field in dataclasses.fields(Result) if field.name != "envelope"},
        )
    except KeyError as error:
        raise SkillboxError(f"{line[0]} answered without {error}") from error


def _ask(line: Sequence[str], text: Optional[bytes], env: Optional[Mapping[str, str]]) -> Mapping[str, Any]:
    done = _run(line, text, env)
    try:
        answer = json.loads(done.stdout)
        if isinstance(answer, dict):
            return answer
    except ValueError:
        pass
    said = done.stderr.decode(errors="replace").strip()
    raise SkillboxError(f"{line[0]} exited with {done.returncode} and no result: {said}")


def _run(line: Sequence[str], text: Optional[bytes], env: Optional[Mapping[str, str]]) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            line,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            check=False,
        )
    except OSError as error:
        raise SkillboxError(f"{line[0]}: {error.strerror}") from error
