"""Times calls of a Skillware skill as a host in Python makes them, each way in turn; reads what to do as JSON from standard input.

A call in this process is execute() of a skill that was imported once. A plain subprocess runs skillbox's own shim without a sandbox: start
of python, import of skill.py, one call. The others are execute_isolated.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
import types

task = json.load(sys.stdin)
sys.dont_write_bytecode = True  # a skill's directory would change under who measures
sys.path.insert(0, task["Client"])
import skillbox  # noqa: E402


class BaseSkill:
    def __init__(self, config=None):
        self.config = config or {}

    def credential(self, key):
        return self.config.get(key) or os.environ.get(key)


def imported():
    """Imports skill.py as a host does that isolates nothing."""
    for name in ("skillware", "skillware.core", "skillware.core.base_skill"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["skillware.core.base_skill"].BaseSkill = BaseSkill
    spec = importlib.util.spec_from_file_location("skill", os.path.join(task["Plain"], "skill.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["skill"] = module
    spec.loader.exec_module(module)
    (cls,) = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, BaseSkill) and c is not BaseSkill]
    return cls({})


def millis(call):
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def in_process():
    skill = imported()
    if hasattr(skill, "execute"):
        return lambda: skill.execute(dict(task["Params"]))
    import asyncio

    return lambda: asyncio.run(skill.aexecute(dict(task["Params"])))


def plain():
    text = json.dumps(task["Params"]).encode()
    env = {**os.environ, "SKILLBOX_SKILL_DIR": task["Plain"]}
    return lambda: json.loads(subprocess.run(["/usr/bin/python3", task["Shim"]], input=text, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout)


def isolated(mode, preload, starts):
    policy = {"warm": {"ready": 2}} if mode == "user" else None

    def call():
        result = skillbox._isolated(
            task["Skill"], task["Params"], 30, policy, None, task["Inputs"] or (), task["Outputs"] or (), None, preload, mode, task["Command"],
        )
        start = result.envelope["sandbox"]["start"]
        starts[start] = starts.get(start, 0) + 1

    return call


answer = {"Times": {}, "Starts": {}}
stdout = os.dup(1)
os.dup2(2, 1)  # skills print
answer["Import"] = millis(imported)
ways = {"in process": in_process(), "plain subprocess": plain()}
for name, mode, preload in (("one-shot", "oneshot", False), ("prepared", "user", False), ("preloaded", "user", True)):
    answer["Starts"][name] = {}
    ways[name] = isolated(mode, preload, answer["Starts"][name])
# In turns, so that what else the machine does hits all ways alike; what the first round finds cold is nobody's.
for round in range(task["Times"] + 1):
    for name, call in ways.items():
        time.sleep(task["Pause"])
        took = millis(call)
        if round:
            answer["Times"].setdefault(name, []).append(took)
os.write(stdout, json.dumps(answer).encode())
