"""Runs inside python3 before a preloaded box's call comes: imports what the script is about to import, then waits for the call.

Python imports this file by itself at the end of its own start (see the documentation of site), finds it by PYTHONPATH, and runs the
script afterwards. So nothing of running a script is imitated here. What this leaves behind is undone before that: the path, the
variables, the descriptor, and this module.

Only sys and os, which are there anyway: a module that the script does not import must not be there because of us.
"""

import os
import sys

CONTROL = 3
VARIABLE = "SKILLBOX_PRELOAD"
ONLY_AST = 0x400  # ast.PyCF_ONLY_AST


class Refused(Exception):
    """Why this script cannot be preloaded: it would notice."""


class Missing(Exception):
    """A module that does not exist: the script finds that out itself."""


class Stop(Exception):
    """A statement that may do anything: it and what follows is the call's."""


def main():
    os.set_inheritable(CONTROL, False)
    late = [name for name in os.environ.pop(VARIABLE).split(",") if name]
    hide()
    customized = real_customization()
    if sys.version_info < (3, 8):
        raise Refused("python before 3.8 sets its arguments too late")
    env = dict(os.environ)
    with Watching(late):
        imports()
    freeze()
    os.write(CONTROL, b"ready\n")
    begin(env)
    return customized


def hide():
    """Takes away how python found this file."""
    here = os.path.dirname(__file__)
    sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)
    _, _, rest = os.environ.pop("PYTHONPATH").partition(os.pathsep)
    if rest:
        os.environ["PYTHONPATH"] = rest
    del sys.modules[__name__]


def real_customization():
    """Imports the module that this one stands before. What it raises is raised again at the end, where site expects it."""
    try:
        __import__(__name__)
    except Exception as e:
        return e.with_traceback(None)
    return None


class Watching:
    """Finds out whether imported code asks for what comes with the call: sys.argv, and variables."""

    def __init__(self, late):
        self.late, self.asked = late, set()

    def __enter__(self):
        self.argv = sys.argv
        del sys.argv
        if self.late:
            self.watch()

    def watch(self):
        plain, late, asked = type(os.environ), self.late, self.asked

        class Watched(plain):
            def __getitem__(self, key):
                name = os.fsdecode(key)
                if name in late:
                    asked.add(name)
                return plain.__getitem__(self, key)

            def __iter__(self):
                asked.update(late)
                return plain.__iter__(self)

        self.plain = plain
        for environ in (os.environ, os.environb):
            environ.__class__ = Watched

    def __exit__(self, kind, value, traceback):
        if kind is not None:
            return  # nothing follows
        if self.late:
            for environ in (os.environ, os.environb):
                environ.__class__ = self.plain
        if hasattr(sys, "argv"):
            raise Refused("an imported module sets sys.argv")
        sys.argv = self.argv
        if self.asked:
            raise Refused("an imported module reads %s, which comes with the call" % ", ".join(sorted(self.asked)))


def imports():
    """Runs the script's import statements up to the first statement that could do anything else."""
    script = SCRIPT
    if sys.version_info >= (3, 9):
        script = os.path.abspath(script)
    body = parse(script)
    module = sys.modules["__main__"]
    path = None
    if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
        path = os.path.dirname(os.path.realpath(script))
        sys.path.insert(0, path)
    module.__file__ = script
    scratch = {"__name__": "__main__", "__file__": script, "__builtins__": sys.modules["builtins"], "__spec__": None, "__package__": None, "__doc__": None}
    try:
        Prefix(script, scratch).run(body)
    except (Missing, Stop):
        pass
    if module.__dict__.pop("__file__", None) != script:
        raise Refused("an imported module changes __main__")
    if path is not None:
        if not sys.path or sys.path[0] is not path:
            raise Refused("an imported module changes the first entry of sys.path")
        del sys.path[0]  # python is about to put it there


def parse(script):
    """The script's statements; none where it has an error, which python is about to tell."""
    with open(script, "rb") as f:
        source = f.read()
    stderr, sys.stderr = sys.stderr, None  # warnings about the source come when python reads it
    try:
        return compile(source, script, "exec", ONLY_AST, True).body
    except Exception:
        return []
    finally:
        sys.stderr = stderr


class Prefix:
    """Runs the first statements of a script in a namespace of their own."""

    def __init__(self, script, scratch):
        self.script, self.scratch = script, scratch

    def run(self, body):
        for node in body:
            getattr(self, "do_" + type(node).__name__, self.do_other)(node)

    def do_other(self, node):
        raise Stop

    def do_Pass(self, node):
        pass

    def do_Import(self, node):
        self.load(node, [alias.name for alias in node.names])

    def do_ImportFrom(self, node):
        if node.level:
            raise Stop  # an error in __main__
        self.load(node, [node.module])

    def load(self, node, names):
        try:
            self.execute(node)
        except ModuleNotFoundError as e:
            for name in names:
                if e.name and (name + ".").startswith(e.name + ".") and e.name not in sys.modules and not ran(e.__traceback__):
                    raise Missing
            raise Refused("%s: %s" % (node_text(names), e))
        except BaseException as e:
            raise Refused("%s: %s: %s" % (node_text(names), type(e).__name__, e))

    def execute(self, node):
        # As a statement of the script, at its line: warnings name where an import stands.
        exec(compile(Module([node], []), self.script, "exec", 0, True), self.scratch)

    def do_Expr(self, node):
        self.plain(node.value)

    def do_Assign(self, node):
        for target in node.targets:
            self.name(target)
        self.plain(node.value)
        self.attempt(node)

    def do_AnnAssign(self, node):
        self.name(node.target)
        self.plain(node.annotation)
        if node.value is not None:
            self.plain(node.value)
        self.attempt(node)

    def attempt(self, node):
        try:
            self.execute(node)
        except Exception:
            raise Stop

    def do_FunctionDef(self, node):
        if node.decorator_list:
            raise Stop
        for child in [node.args, node.returns]:
            if child is not None:
                self.plain(child)

    do_AsyncFunctionDef = do_FunctionDef

    def do_If(self, node):
        self.plain(node.test)
        scratch = self.scratch
        try:
            code = compile(Expression(node.test), self.script, "eval", 0, True)
            chosen = bool(eval(code, scratch))
        except Exception:
            raise Stop
        self.run(node.body if chosen else node.orelse)

    def do_Try(self, node):
        try:
            self.run(node.body)
        except Missing:
            # The handler is the call's; it may only do what this here would.
            if not any(catches(h) for h in node.handlers):
                raise
            for handler in node.handlers:
                self.harmless(handler.body)
            self.harmless(node.finalbody)
            return
        self.run(node.orelse)
        self.run(node.finalbody)

    def harmless(self, body):
        for node in body:
            kind = type(node).__name__
            if kind == "Assign":
                for target in node.targets:
                    self.name(target)
                self.plain(node.value)
            elif kind not in ("Import", "ImportFrom", "Pass"):
                raise Stop

    def name(self, target):
        if type(target).__name__ != "Name":
            raise Stop

    def plain(self, node):
        """An expression that calls nothing."""
        if type(node).__name__ in ("Call", "Await", "Yield", "YieldFrom", "NamedExpr", "ListComp", "SetComp", "DictComp", "GeneratorExp"):
            raise Stop
        for field in node._fields:
            value = getattr(node, field, None)
            for child in value if isinstance(value, list) else [value]:
                if hasattr(child, "_fields"):
                    self.plain(child)


def catches(handler):
    if handler.type is None:
        return True
    types = getattr(handler.type, "elts", [handler.type])
    return any(getattr(t, "id", "") in ("ImportError", "ModuleNotFoundError", "Exception", "BaseException") for t in types)


def ran(traceback):
    """Whether an import got as far as running a file before it failed."""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith("<frozen ") and code.co_filename not in (__file__, os.path.abspath(SCRIPT), SCRIPT):
            return True
        traceback = traceback.tb_next
    return False


def node_text(names):
    return "import " + ", ".join(names)


def freeze():
    """Takes what there is out of the garbage collector's sight. It would look at all of it several times as the process ends, which takes
    longer than all else in a short call; and what imports made is not garbage until then."""
    there = "gc" in sys.modules
    import gc

    gc.freeze()
    if not there:
        del sys.modules["gc"]


def begin(before):
    """Waits for the call, and gives the process what a process of its own would have got."""
    count = int(receive(8), 16)
    parts = receive(count).split(b"\0")
    os.close(CONTROL)
    words, variables = int(parts[0]), parts[1:-1]
    args = [os.fsdecode(word) for word in variables[:words]]
    sys.argv.extend(args)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv.extend(args)
    after = {}
    for variable in variables[words:]:
        name, _, value = os.fsdecode(variable).partition("=")
        after[name] = value
    # Only what differs: an imported module may have changed the rest.
    for name in before:
        if name not in after:
            os.environ.pop(name, None)
    for name, value in after.items():
        if before.get(name) != value:
            os.environ[name] = value


def receive(count):
    data = b""
    while len(data) < count:
        part = os.read(CONTROL, min(count - len(data), 1 << 16))
        if not part:
            os._exit(125)  # init is gone
        data += part
    return data


def give_up(why):
    """The box is of no use: init is told why, and ends it."""
    try:
        os.write(CONTROL, b"refused: " + why.encode("utf-8", "backslashreplace")[:400].replace(b"\n", b" ") + b"\n")
        os.read(CONTROL, 1)
    finally:
        os._exit(125)


# Constructors of what compile takes; the module ast, which knows them too, brings others along.
Module = type(compile("", "", "exec", ONLY_AST))
Expression = type(compile("0", "", "eval", ONLY_AST))
SCRIPT = ""
try:
    SCRIPT = sys.argv[0]
    customized = main()
except BaseException as e:  # nothing may get from here to running the script
    give_up(str(e) if isinstance(e, Refused) else "%s: %s" % (type(e).__name__, e))
if customized is not None:
    raise customized
