"""What skillware.py runs: loads skill.py as it is imported, calls the skill in main().

Parameters come as JSON from $SKILLBOX_PARAMS_FILE, else from standard input; nothing at all is {}. The result goes as JSON to standard
output, and to $SKILLBOX_RESULT_FILE where that is set. Standard output carries the result and nothing else: what the skill prints goes to
standard error. An exception is a traceback on standard error and exit status 1.

Standard library only, Python 3.9 or newer.
"""

# Few imports, since every call pays for them: asyncio, inspect and traceback cost more than the rest of the start together.
import importlib.util
import json
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("SKILLBOX_SKILL_DIR") or "/skill"
SECRETS = "/run/secrets"
CONFIG = "SKILLWARE_CONFIG"
CO_VARKEYWORDS = 0x08
CO_COROUTINE = 0x80

# Import names of distributions that are called otherwise; the rest are guessed.
IMPORTED_AS = {
    "beautifulsoup4": "bs4", "google-genai": "google.genai", "google-generativeai": "google.generativeai", "opencv-python": "cv2",
    "pillow": "PIL", "protobuf": "google.protobuf", "pymupdf": "fitz", "pypdf2": "PyPDF2", "python-dateutil": "dateutil",
    "python-docx": "docx", "python-dotenv": "dotenv", "python-pptx": "pptx", "pyyaml": "yaml", "scikit-learn": "sklearn",
}


class Failed(Exception):
    """A message for the person who called, instead of a traceback."""


def main():
    try:
        sys.path.remove(HERE)  # nothing of ours is for the skill to import
    except ValueError:
        pass
    if missing:
        # The skill may do without, or import them only when they are needed.
        print("skillware: the manifest requires what is not installed here: %s" % ", ".join(missing), file=sys.stderr)
    try:
        if trouble is not None:
            raise trouble
        params = read_params()
        result = run(skill, params)
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
    kept = os.dup(1)  # not inheritable, so a child left behind cannot hold it open
    os.dup2(2, 1)
    return kept


def encode(result):
    try:
        text = json.dumps(result, default=str, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise Failed("the result has no form in JSON: %s" % e)
    # A lone surrogate has no UTF-8, and its Python escape happens to be JSON's.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def deliver(to, data):
    sys.stdout.flush()
    path = os.environ.get("SKILLBOX_RESULT_FILE")
    if path:
        with open(path, "wb") as f:
            f.write(data)
    try:
        while data:
            data = data[os.write(to, data):]
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


def read_word():
    """What skillboxd read of the manifest."""
    try:
        with open(os.path.join(HERE, "skillware.json"), "rb") as f:
            return json.loads(f.read())
    except FileNotFoundError:
        return {}


def load(path):
    """Imports skill.py while sys.path is as the skill is to see it; what it changes there is kept."""
    mine = sys.path[:]
    sys.path[:] = [ROOT] + [p for p in mine if p not in (ROOT, HERE)]
    try:
        missing.extend(r for r in word.get("requirements") or () if not installed(r))
        provide_base_skill()
        sys.meta_path.append(YAML)
        spec = importlib.util.spec_from_file_location("skill", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["skill"] = module
        try:
            spec.loader.exec_module(module)
        except FileNotFoundError as e:
            if e.filename == path:
                raise Failed("there is no skill.py in the bundle")
            raise
    finally:
        # Whoever preloads looks for its own first entry, as python put it there.
        sys.path[:] = mine[:1] + sys.path if mine[:1] == [HERE] else sys.path
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


class YAML:
    """Stands in for PyYAML where it is not installed: skillware brings it, and skills read their own manifest with it, which is known."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_loader(name, YAML) if name == "yaml" else None

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        class YAMLError(Exception):
            pass

        def safe_load(stream):
            text = stream.read() if hasattr(stream, "read") else stream
            text = text.decode("utf-8") if isinstance(text, bytes) else text
            with open(os.path.join(ROOT, "manifest.yaml"), encoding="utf-8") as f:
                if text == f.read() and word.get("manifest"):
                    return json.loads(json.dumps(word["manifest"]))
            try:
                return json.loads(text)  # which is YAML too
            except ValueError:
                raise YAMLError("PyYAML is not installed here: without it only the skill's own manifest can be read")

        module.YAMLError, module.safe_load = YAMLError, safe_load


class SkillwareParamValidationError(ValueError):
    pass


class BaseSkill:
    """Stands in for skillware's base class: what a skill may call on itself, without its dependencies."""

    def __init__(self, config=None):
        self.config = config or {}

    @property
    def manifest(self):
        return word.get("manifest") or {}

    def credential(self, key):
        for value in (self.config.get(key), os.environ.get(key)):
            if value is not None and str(value).strip():
                return str(value).strip()
        return None

    def validate_params(self, params):
        # skillbox has checked the parameters against the manifest.
        if not isinstance(params, dict):
            raise SkillwareParamValidationError("the parameters must be an object")
        return True


def run(module, params):
    method = find_method(construct(find_class(module), read_config()))
    result = method(params)
    if hasattr(result, "__await__"):
        import asyncio

        result = asyncio.run(finish(result))
    return result


async def finish(awaitable):
    return await awaitable


def find_method(instance):
    return getattr(instance, "execute", None) or instance.aexecute


def read_config():
    """What a Skillware host hands to the constructor: the manifest's variables, from secrets or the environment, and what the caller gave."""
    config = {}
    for name in word.get("env_vars") or ():
        try:
            with open(os.path.join(SECRETS, name), encoding="utf-8") as f:
                config[name] = f.read()
        except OSError:
            if name in os.environ:
                config[name] = os.environ[name]
    given = os.environ.get(CONFIG)
    if given:
        try:
            config.update(json.loads(given))
        except (TypeError, ValueError) as e:
            raise Failed("%s is not a JSON object: %s" % (CONFIG, e))
    return config


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


def is_async(module):
    try:
        method = find_method(find_class(module))
    except Failed:
        return False  # which is told when the call comes
    return bool(getattr(getattr(method, "__code__", None), "co_flags", 0) & CO_COROUTINE)


def construct(cls, config):
    code = getattr(cls.__init__, "__code__", None)
    if code is None:  # object's own, or one in C
        return cls()
    accepted = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if "config" in accepted or code.co_flags & CO_VARKEYWORDS:
        return cls(config=config)
    return cls()


def installed(requirement):
    name = requirement.split(";")[0].split("[")[0]
    for sign in "<>=!~ @":
        name = name.split(sign)[0]
    guess = IMPORTED_AS.get(name.lower(), name.replace("-", "_"))
    for module in (guess, guess.lower()):
        try:
            if module in sys.modules or importlib.util.find_spec(module) is not None:
                return True
        except (ImportError, ValueError):
            pass
    # Slow, and right where the guess is not.
    from importlib import metadata

    try:
        metadata.distribution(name)
        return True
    except (metadata.PackageNotFoundError, ValueError):
        return False


sys.dont_write_bytecode = True
out = take_stdout()
word = read_word()
skill = trouble = None
missing = []
try:
    skill = load(os.path.join(ROOT, "skill.py"))
    if is_async(skill):
        import asyncio  # noqa: F401  It takes longer than all else of a short call.
except BaseException as e:
    if not hasattr(sys, "argv"):
        raise  # preloading: what the import misses may come with the call, which imports for itself then
    trouble = e
