"""Runs a Skillware skill: /skill/skill.py, a class with execute(params).

skillbox places this file at /run/skillbox and runs it inside the box, with the rights of the skill and no others.
Parameters come as JSON from $SKILLBOX_PARAMS_FILE, else from standard input; nothing at all is {}. The result goes as JSON to
standard output, and to $SKILLBOX_RESULT_FILE where that is set. Standard output carries the result and nothing else: what the
skill prints goes to standard error. An exception is a traceback on standard error and exit status 1.

Standard library only, Python 3.9 or newer.
"""

# Few imports, since every call pays for them: asyncio, inspect and traceback cost more than the rest of the start together.
import importlib.util
import json
import os
import sys
import types

ROOT = os.environ.get("SKILLBOX_SKILL_DIR") or "/skill"
CO_VARKEYWORDS = 0x08


class Failed(Exception):
    """A message for the person who called, instead of a traceback."""


def main():
    sys.dont_write_bytecode = True
    out = take_stdout()
    try:
        params = read_params()
        result = run(load(os.path.join(ROOT, "skill.py")), params)
        data = encode(result)
    except Failed as e:
        print("skillware: %s" % e, file=sys.stderr)
        return 1
    except SystemExit as e:
        # sys.exit(0) in the middle of a skill has produced no result, and must not pass for success.
        print("skillware: the skill called sys.exit(%r)" % (e.code,), file=sys.stderr)
        return e.code if isinstance(e.code, int) and 0 < e.code < 256 else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    return deliver(out, data)


def take_stdout():
    """Keeps the caller's standard output for the result, and makes descriptor 1 a second standard error.

    The descriptor and not only sys.stdout: libraries in C and child processes write there too.
    """
    sys.stdout.flush()
    out = os.dup(1)  # not inheritable, so a child left behind cannot hold it open
    os.dup2(2, 1)
    return out


def encode(result):
    try:
        text = json.dumps(result, default=str, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise Failed("the result has no form in JSON: %s" % e)
    # A lone surrogate has no UTF-8, and its Python escape happens to be JSON's.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def deliver(out, data):
    sys.stdout.flush()
    path = os.environ.get("SKILLBOX_RESULT_FILE")
    if path:
        with open(path, "wb") as f:
            f.write(data)
    try:
        while data:
            data = data[os.write(out, data):]
    except BrokenPipeError:
        return 1
    return 0


def read_params():
    path = os.environ.get("SKILLBOX_PARAMS_FILE")
    if path:
        with open(path, "rb") as f:
            data = f.read()
    elif sys.stdin is None or sys.stdin.isatty():
        data = b""
    else:
        data = sys.stdin.buffer.read()
    if not data.strip():
        return {}
    try:
        params = json.loads(data)
    except ValueError as e:
        raise Failed("the parameters are not JSON: %s" % e)
    if not isinstance(params, dict):
        raise Failed("the parameters must be a JSON object, not %s" % type(params).__name__)
    return params


def load(path):
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [ROOT] + [p for p in sys.path if p not in (ROOT, here)]
    provide_base_skill()
    spec = importlib.util.spec_from_file_location("skill", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["skill"] = module
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as e:
        if e.filename == path:
            raise Failed("there is no skill.py in the bundle")
        raise
    return module


def provide_base_skill():
    """Makes `from skillware.core.base_skill import BaseSkill` work where the skillware package is not installed."""
    try:
        import skillware.core.base_skill  # noqa: F401
        return
    except ImportError:
        pass
    for name in ("skillware", "skillware.core", "skillware.core.base_skill"):
        module = types.ModuleType(name)
        module.__path__ = []
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    sys.modules["skillware.core.base_skill"].BaseSkill = BaseSkill
    sys.modules["skillware.core.base_skill"].SkillwareParamValidationError = SkillwareParamValidationError


class SkillwareParamValidationError(ValueError):
    pass


class BaseSkill:
    """Stands in for skillware's base class: what a skill may call on itself, without its dependencies."""

    def __init__(self, config=None):
        self.config = config or {}

    @property
    def manifest(self):
        return {}

    def credential(self, key):
        value = self.config.get(key)
        if value is None:
            value = os.environ.get(key)
        return (str(value).strip() or None) if value is not None else None

    def validate_params(self, params):
        # The host has checked the parameters against the manifest, or chosen not to.
        if not isinstance(params, dict):
            raise SkillwareParamValidationError("the parameters must be an object")
        return True


def run(module, params):
    cls = find_class(module)
    skill = construct(cls)
    method = getattr(skill, "execute", None) or skill.aexecute
    result = method(params)
    if hasattr(result, "__await__"):
        import asyncio

        result = asyncio.run(finish(result))
    return result


async def finish(awaitable):
    return await awaitable


def find_class(module):
    """The one class of skill.py that is a skill: it has execute or aexecute, and no other of them builds on it."""
    found = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__ and is_skill(c)]
    found = list(dict.fromkeys(found))  # one class may have two names
    leaves = [c for c in found if not any(c is not d and issubclass(d, c) for d in found)]
    # A helper class may well have a method execute: where classes derive from BaseSkill, only those are meant.
    leaves = [c for c in leaves if any(b.__name__ == "BaseSkill" for b in c.__mro__[1:])] or leaves
    if not leaves:
        raise Failed("skill.py defines no class with a method execute(params) or aexecute(params)")
    if len(leaves) > 1:
        names = ", ".join(sorted(c.__name__ for c in leaves))
        raise Failed("skill.py defines several classes with a method execute: %s; one of them must be the skill" % names)
    return leaves[0]


def is_skill(cls):
    if getattr(cls, "__abstractmethods__", None):
        return False
    return any(callable(getattr(cls, name, None)) for name in ("execute", "aexecute"))


def construct(cls):
    code = getattr(cls.__init__, "__code__", None)
    if code is None:  # object's own, or one in C
        return cls()
    accepted = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if "config" in accepted or code.co_flags & CO_VARKEYWORDS:
        return cls(config={})
    return cls()


if __name__ == "__main__":
    sys.exit(main())
