"""Run agent skills in skillbox sandboxes: one file, the standard library alone, Python 3.9 and later.

    import skillbox
    result = skillbox.run("skills/word-count", params={"text": "a b a"})
    print(result.result)

Several calls of one conversation share a sandbox, with what they leave in its files and running:

    with skillbox.Session("skills/notebook") as session:
        session.run(params={"do": "x = 1"})
        print(session.run(params={"do": "x + 1"}).result)

An exception says that skillbox could not be asked. Whatever the skill did, and what policy or host refused, is in the Result.

Skillware skills (manifest.yaml beside skill.py) answer with their value, or raise SkillFailed, which has what a Result has:

    skillbox.execute_isolated("finance/wallet_screening", {"address": "0x…"}, timeout=10)
    skill = skillbox.SkillLoader(policy="policy.yaml").load_skill("finance/wallet_screening")["class"]()
    skill.execute({"address": "0x…"})

and from a shell: python3 -m skillbox run --isolated finance/wallet_screening --params '{"address": "0x…"}'

Everything here may be called from several threads at a time.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

__all__ = [
    "IsolatedSkill", "Result", "Session", "SkillFailed", "SkillLoader", "SkillRefused", "SkillTimedOut", "SkillboxError",
    "execute_isolated", "find_skill", "run",
]


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
    return _call(line, _operand(bundle), words, params, inputs, output, entry, timeout, env)


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
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{seconds} s is no time that a call could take")  # and 0 would be the policy's
    return f"{max(1, round(seconds * 1000))}ms"


def _operand(path: "str | os.PathLike[str]") -> str:
    """Return a path that is no flag, whatever its name is."""
    path = os.fspath(path)
    return f"./{path}" if path.startswith("-") else path


def _input(name: str, path: str) -> str:
    """Return PATH:NAME as --input takes it: it splits at the last colon, but takes the whole for a path where such a file is."""
    both = f"{path}:{name}"
    if ":" in name:
        raise ValueError(f"the input's name {name!r} has a colon")
    if os.path.lexists(both):
        raise ValueError(f"there is a file {os.path.basename(both)} too, which {path} as the input {name} would be taken for: rename one")
    return both


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
        line += ["--input", _input(name, os.fspath(path))]
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
    said = done.stderr.decode(errors="replace").strip()
    try:
        answer = _parse(done.stdout)
        if isinstance(answer, dict):
            return answer
    except ValueError as error:
        said = said or str(error)
    raise SkillboxError(f"{line[0]} exited with {done.returncode} and no result: {said}")


def _parse(text: "str | bytes") -> Any:
    """Return a JSON value; a stranger's choice of it is a ValueError at worst."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON is nested deeper than Python reads it") from error


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


# Skillware


class SkillFailed(SkillboxError):
    """A skill did not answer. It has the fields of the Result: verdict, exit_code, stderr, error, denials …"""

    def __init__(self, result: Result) -> None:
        self.result = result
        said = result.stderr.strip().splitlines()
        why = (result.error or {}).get("message") or (said[-1] if said else "it answered with no JSON")
        super().__init__(f"the skill {result.verdict.replace('_', ' ')}, exit code {result.exit_code}: {why}")

    def __getattr__(self, name: str) -> Any:
        if name == "result" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.result, name)


class SkillTimedOut(SkillFailed, TimeoutError):
    """The skill ran longer than it may."""


class SkillRefused(SkillFailed, ValueError):
    """Nothing was run: the parameters do not fit the skill's schema, or policy or host do not permit what was asked. error says which."""


Policy = Union[str, "os.PathLike[str]", Mapping[str, Any], None]


def execute_isolated(
    skill_path: "str | os.PathLike[str]",
    params: Optional[Mapping[str, Any]] = None,
    timeout: Optional[float] = 30,
    policy: Policy = None,
    *,
    config: Optional[Mapping[str, Any]] = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    env: Optional[Mapping[str, str]] = None,
    preload: bool = False,
    mode: str = "auto",
    command: str = "skillbox",
) -> Any:
    """Run a Skillware skill in a sandbox of its own and return what its execute() returned, as it comes through JSON.

    skill_path is as find_skill takes it. timeout is in seconds; None is the policy's. policy is a file, or its keys and values; None is no
    network and nothing of the host's. config is what the skill's constructor gets; the variables that its manifest names and the policy
    passes come from env, beside those of this process, and are in config too.

    inputs and outputs are names of parameters that hold paths of files on this host: those are opened with the rights of this process, the
    skill reads them in /input, and what it writes in their place in /output lies where they say, over what was there, when it has answered.
    The paths are this host's again where they stand in its answer.

    preload has a service import skill.py before calls come; in a policy file it is `warm: {preload: true}`.
    """
    result = _isolated(skill_path, params, timeout, policy, config, inputs, outputs, env, preload, mode, command)
    return result.result


def _isolated(
    skill_path: "str | os.PathLike[str]",
    params: Optional[Mapping[str, Any]],
    timeout: Optional[float],
    policy: Policy,
    config: Optional[Mapping[str, Any]],
    inputs: Sequence[str],
    outputs: Sequence[str],
    env: Optional[Mapping[str, str]],
    preload: bool,
    mode: str,
    command: str,
) -> Result:
    bundle = find_skill(skill_path)
    given = dict(params or {})
    files = _map(given, inputs, "/input")
    made = _map(given, outputs, "/output")
    line = [command, "exec", "--json", "--mode", mode]
    env = dict(env or {})
    if config:
        env["SKILLWARE_CONFIG"] = json.dumps(config)
        line += ["--env", "SKILLWARE_CONFIG"]
    with tempfile.TemporaryDirectory(prefix="skillbox-") as scratch:
        policy = _policy_file(policy, preload, scratch)
        if policy is not None:
            line += ["--policy", policy]
        taken = os.path.join(scratch, "output") if made else None
        named = {os.path.basename(inside): path for inside, path in files.items()}
        result = _call(line, _operand(bundle), (), given, named, taken, None, timeout, env)
        if result.verdict == "timed_out":
            raise SkillTimedOut(result)
        if result.verdict == "refused":
            raise SkillRefused(result)
        if not result.success or result.envelope.get("result") is None and result.stdout.strip() != "null":
            raise SkillFailed(result)
        for inside, path in made.items():
            left = os.path.join(str(taken), os.path.basename(inside))
            if os.path.isfile(left) and not os.path.islink(left):
                shutil.move(left, path)
    if not files and not made:
        return result
    try:
        return dataclasses.replace(result, result=_unmap(result.result, {**files, **made}))
    except RecursionError as error:
        raise SkillboxError("the answer is nested too deep to look for paths in it") from error


def _map(params: Dict[str, Any], names: Sequence[str], directory: str) -> Dict[str, str]:
    """Replace the values of these parameters by paths in a directory of the box; returns the host's path by the box's."""
    mapped: Dict[str, str] = {}
    for name in names:
        value = params.get(name)
        if value is None:
            continue  # an optional one
        if not isinstance(value, (str, os.PathLike)):
            raise TypeError(f"the parameter {name} is no path: {value!r}")
        path = os.path.abspath(os.fspath(value))
        base = os.path.basename(path).replace(":", "_")  # --input splits at colons
        inside, number = f"{directory}/{base}", 1
        while mapped.get(inside, path) != path:  # another file's, which may have the name of a numbered one
            inside, number = f"{directory}/{number}-{base}", number + 1
        mapped[inside] = path
        params[name] = inside
    return mapped


def _unmap(value: Any, paths: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return paths.get(value, value)
    if isinstance(value, list):
        return [_unmap(v, paths) for v in value]
    if isinstance(value, dict):
        return {k: _unmap(v, paths) for k, v in value.items()}
    return value


def _policy_file(policy: Policy, preload: bool, scratch: str) -> Optional[str]:
    if isinstance(policy, (str, os.PathLike)):
        if preload:
            raise ValueError(f"preload: write `warm: {{preload: true}}` into {os.fspath(policy)} instead")
        return os.fspath(policy)
    if policy is None and not preload:
        return None
    keys = {"version": 1, **(policy or {})}
    if preload:
        keys["warm"] = {**keys.get("warm", {}), "preload": True}
    path = os.path.join(scratch, "policy.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(keys, file)  # which is YAML
    return path


_PARENTS = 6


def find_skill(skill_path: "str | os.PathLike[str]") -> pathlib.Path:
    """Return the directory of a skill: a path of it, or category/name below $SKILLWARE_SKILL_PATH, skills/ here or in a directory above,
    or the skills that the skillware package brings, the first that has a skill.py."""
    direct = pathlib.Path(skill_path).expanduser()
    candidates = [direct]
    if not direct.is_absolute():
        roots = [pathlib.Path(p).expanduser() for p in os.environ.get("SKILLWARE_SKILL_PATH", "").split(os.pathsep) if p.strip()]
        here = pathlib.Path.cwd()
        roots += [directory / "skills" for directory in [here, *here.parents][:_PARENTS]]
        package = importlib.util.find_spec("skillware")
        if package is not None and package.origin:
            roots.append(pathlib.Path(package.origin).parent.parent / "skills")
        candidates += [root / direct for root in roots]
    for candidate in candidates:
        if (candidate / "skill.py").is_file():
            return candidate
    raise FileNotFoundError(f"no skill {os.fspath(skill_path)}: looked for its skill.py in {', '.join(map(str, candidates))}")


class IsolatedSkill:
    """A skill as its host sees it: execute(params) runs it in a sandbox, and nothing of its code runs here."""

    def __init__(self, config: Optional[Mapping[str, Any]] = None) -> None:
        self.config = dict(config or {})

    path: pathlib.Path
    manifest: Mapping[str, Any]
    options: Mapping[str, Any] = {}

    def execute(self, params: Optional[Mapping[str, Any]] = None) -> Any:
        return execute_isolated(self.path, params, config=self.config, **self.options)

    async def aexecute(self, params: Optional[Mapping[str, Any]] = None) -> Any:
        import asyncio  # who calls this has it

        return await asyncio.get_running_loop().run_in_executor(None, self.execute, params)


class SkillLoader:
    """Stands in for skillware's SkillLoader: load_skill answers with the same keys, and runs nothing of the skill's.

    Its options are those of execute_isolated, but for skill_path, params and config, and hold for all that it loads.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options

    def load_skill(self, skill_path: "str | os.PathLike[str]") -> Dict[str, Any]:
        path = find_skill(skill_path)
        command = self.options.get("command", "skillbox")
        skill = _ask([command, "bundle", "show", "--json", _operand(path)], None, None)
        manifest = skill.get("document") or {}
        attributes = {"path": path, "manifest": manifest, "options": dict(self.options), "__doc__": skill.get("description")}
        card = _text(path, "card.json")
        return {
            "class": type("Isolated", (IsolatedSkill,), attributes),
            "module": None,
            "manifest": manifest,
            "instructions": _text(path, "instructions.md"),
            "card": _parse(card) if card else {},
            "registry_id": skill.get("name"),
        }


def _text(bundle: pathlib.Path, name: str) -> str:
    """Return what a file of a bundle says, "" where there is none. A link that leads out of the bundle, which could not be run either, would
    have the host tell a model what a stranger asks for."""
    path = os.path.realpath(bundle / name)
    if os.path.commonpath([path, os.path.realpath(bundle)]) != os.path.realpath(bundle):
        raise SkillboxError(f"{bundle / name}: leads out of the skill; remove the link, or put the file in its place")
    return pathlib.Path(path).read_text(encoding="utf-8") if os.path.isfile(path) else ""


def _main(argv: Optional[List[str]] = None) -> int:
    import argparse

    parser = argparse.ArgumentParser(prog="python3 -m skillbox", description="Run Skillware skills in sandboxes.")
    command = parser.add_subparsers(dest="verb", required=True).add_parser("run", help="run one skill and print what it answers")
    command.add_argument("skill", help="directory, or category/name")
    command.add_argument("--isolated", action="store_true", required=True, help="in a sandbox; nothing is run otherwise")
    command.add_argument("--params", default="{}", help="JSON, @FILE, or - for standard input")
    command.add_argument("--config", default="{}", help="JSON object for the skill's constructor")
    command.add_argument("--timeout", type=float, default=30, metavar="SECONDS")
    command.add_argument("--policy", metavar="FILE")
    command.add_argument("--input", action="append", default=[], metavar="NAME", help="the parameter NAME is the path of a file to read; repeatable")
    command.add_argument("--output", action="append", default=[], metavar="NAME", help="the parameter NAME is the path of a file to write; repeatable")
    command.add_argument("--preload", action="store_true", help="have a service import skill.py before calls come")
    command.add_argument("--mode", default="auto", choices=["auto", "system", "user", "oneshot"])
    command.add_argument("--skillbox", default="skillbox", metavar="PROGRAM")
    o = parser.parse_args(argv)
    try:
        params, config = _json_object("--params", o.params), _json_object("--config", o.config)
        result = _isolated(o.skill, params, o.timeout, o.policy, config, o.input, o.output, None, o.preload, o.mode, o.skillbox)
        answer = _json_text(result.result)
    except SkillFailed as failed:
        _show(failed.stderr)
        where = f"{failed.error['field']}: " if failed.error and failed.error.get("field") else ""
        _say(f"{where}{(failed.error or {}).get('message') or failed}")
        return int(failed.exit_code) or 1
    except (SkillboxError, OSError, ValueError, TypeError, RecursionError) as error:
        _say(str(error))
        return 125
    _show(result.stderr)
    for warning in result.warnings:
        _say(f"warning: {warning}")
    print(answer)
    return 0


def _say(line: str) -> None:
    """Write a line of this program's own, which may quote the skill."""
    print(f"skillbox: {_visible(line) if sys.stderr.isatty() else line}", file=sys.stderr)


def _show(text: str) -> None:
    """Write what the skill wrote to stderr: as it is, but on a terminal, where it is to order nothing and to pass for no line of _say."""
    if text and sys.stderr.isatty():
        text = "\r\n".join(_visible(part) for part in text.split("\r\n"))
        text = re.sub("(?m)^(?=skillbox:)", "skill> ", text) + ("" if text.endswith("\n") else "\n")
    sys.stderr.write(text)


_WRITTEN = {"\a": "\\a", "\b": "\\b", "\v": "\\v", "\f": "\\f", "\r": "\\r"}


def _visible(text: str) -> str:
    """Write out what a terminal would obey or not show, as \\x1b or \\u202e; tabs and the ends of lines stay."""
    return "".join(c if c in "\t\n" or c.isprintable() else _WRITTEN.get(c) or _code(ord(c)) for c in text)


def _code(c: int) -> str:
    return f"\\x{c:02x}" if c < 0x80 else f"\\u{c:04x}" if c < 0x10000 else f"\\U{c:08x}"


def _json_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can name, or a locale without these characters
        return json.dumps(value)
    if sys.stdout.isatty():
        # JSON lets DEL, the C1 controls and what turns the direction of text stand in texts.
        text = "".join(c if c <= "~" or c.isprintable() else json.dumps(c)[1:-1] for c in text)
    return text


def _json_object(flag: str, text: str) -> Dict[str, Any]:
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = pathlib.Path(text[1:]).read_text(encoding="utf-8")
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{flag} must be a JSON object")
    return value


if __name__ == "__main__":
    sys.exit(_main())
