"""Run agent skills in skillbox sandboxes: one file, the standard library alone, Python 3.9 and later.

    import skillbox
    result = skillbox.run("skills/word-count", params={"text": "a b a"})
    print(result.result)

An exception says that skillbox could not be asked. Whatever the skill did, and what policy or host refused, is in the Result.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from typing import Any, Mapping, Optional, Sequence

__all__ = ["Result", "SkillboxError", "run"]


class SkillboxError(Exception):
    """skillbox could not be asked, or its answer was not understood."""


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
    if entry is not None:
        line += ["--entry", entry]
    if timeout is not None:
        line += ["--timeout", f"{timeout * 1000:.0f}ms"]
    if output is not None:
        line += ["--output", os.fspath(output)]
    for name, path in (inputs or {}).items():
        line += ["--input", f"{os.fspath(path)}:{name}"]
    if params is not None:
        line += ["--params", "-"]
    line += [os.fspath(bundle), "--", *words]
    text = None if params is None else json.dumps(params).encode()
    try:
        done = subprocess.run(
            line,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            check=False,
        )
    except OSError as error:
        raise SkillboxError(f"{command}: {error.strerror}") from error
    try:
        envelope = json.loads(done.stdout)
        return Result(
            envelope=envelope,
            **{field.name: envelope[field.name] for field in dataclasses.fields(Result) if field.name != "envelope"},
        )
    except (ValueError, KeyError, TypeError) as error:
        said = done.stderr.decode(errors="replace").strip()
        raise SkillboxError(f"{command} exited with {done.returncode} and no result: {said}") from error
