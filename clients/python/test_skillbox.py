"""Tests of skillbox.py, run by the integration tests: SKILLBOX names the command, SKILLBOX_EXAMPLES the examples' directory, and
SKILLWARE_SKILL_PATH that of the Skillware skills."""

import asyncio
import concurrent.futures
import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import time
import tty
import unittest

import skillbox

COMMAND = os.environ["SKILLBOX"]
EXAMPLES = pathlib.Path(os.environ["SKILLBOX_EXAMPLES"])


class Run(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.dir = pathlib.Path(held.name)

    def run_skill(self, *args, **more):
        return skillbox.run(*args, command=COMMAND, **more)

    def test_parameters_go_in_and_a_value_comes_out(self):
        for mode in ("oneshot", "user"):
            with self.subTest(mode):
                r = self.run_skill(EXAMPLES / "word-count", params={"text": "a b a"}, mode=mode)
                self.assertTrue(r.success, r)
                self.assertEqual(r.result["words"], 3)

    def test_what_the_skill_did_is_a_result(self):
        r = self.run_skill(self.dir, ["sh", "-c", "echo out; echo err >&2; exit 3"])
        self.assertEqual((r.success, r.verdict, r.exit_code, r.stdout, r.stderr), (False, "exited", 3, "out\n", "err\n"))
        self.assertIsNone(r.error)

    def test_a_timeout_is_a_verdict(self):
        self.assertEqual(self.run_skill(self.dir, ["sleep", "60"], timeout=0.3).verdict, "timed_out")

    def test_a_refusal_says_where(self):
        policy = self.dir / "policy.yaml"
        policy.write_text("version: 1\nnetwork: nonsense\n")
        r = self.run_skill(self.dir, ["true"], policy=policy)
        self.assertEqual((r.verdict, r.exit_code, r.error["line"]), ("refused", 125, 2))

    def test_files_and_values_are_passed(self):
        (self.dir / "note.txt").write_text("a note")
        policy = self.dir / "policy.yaml"
        policy.write_text("version: 1\nenv: {pass: [WORD]}\n")
        r = self.run_skill(
            self.dir, ["sh", "-c", 'cat /input/in.txt; echo " and $WORD" | tee /output/o.txt'], policy=policy,
            inputs={"in.txt": self.dir / "note.txt"}, env={"WORD": "a word"}, output=self.dir / "out",
        )
        self.assertEqual(r.stdout, "a note and a word\n", r)
        self.assertEqual((self.dir / "out" / "o.txt").read_text(), " and a word\n")

    def test_a_bundle_is_no_flag(self):
        bundle = self.dir / "--raw"
        bundle.mkdir()
        (bundle / "manifest.yaml").write_text("name: a/b\n")
        (bundle / "skill.py").write_text("class S:\n def execute(self, p): return 'ran'\n")
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.dir)
        r = self.run_skill("--raw")
        self.assertEqual(r.result, "ran", r)
        loaded = skillbox.SkillLoader(command=COMMAND).load_skill("./--raw")
        self.assertEqual((loaded["registry_id"], loaded["class"]().execute()), ("a/b", "ran"))

    def test_an_input_is_the_file_that_the_caller_names(self):
        bundle, mine, other = self.dir / "bundle", self.dir / "a", self.dir / "a:b"
        bundle.mkdir()
        mine.write_text("mine")
        other.write_text("another's")
        with self.assertRaisesRegex(ValueError, "there is a file a:b too"):
            self.run_skill(bundle, ["true"], inputs={"b": mine})
        with self.assertRaisesRegex(ValueError, "'b:c' has a colon"):
            self.run_skill(bundle, ["true"], inputs={"b:c": mine})
        r = self.run_skill(bundle, ["cat", "/input/c"], inputs={"c": other})
        self.assertEqual(r.stdout, "another's", r)

    def test_no_time_is_not_the_policys_time(self):
        for timeout in (0, -1, float("nan"), float("inf")):
            with self.assertRaisesRegex(ValueError, "is no time"):
                self.run_skill(self.dir, ["true"], timeout=timeout)
        self.assertEqual(self.run_skill(self.dir, ["true"], timeout=0.0001).verdict, "refused")

    def test_an_answer_that_cannot_be_read_is_an_exception(self):
        with self.assertRaises(skillbox.SkillboxError):
            self.run_skill(self.dir, ["python3", "-c", "print('[' * 5000 + ']' * 5000)"])

    def test_calls_of_a_session_share_a_sandbox(self):
        with skillbox.Session(self.dir, command=COMMAND, idle=60, total=120) as session:
            r = session.run(["sh", "-c", "cat > /tmp/state"], params={"x": 1})
            self.assertTrue(r.success, r)
            r = session.run(["cat", "/tmp/state"])
            self.assertEqual((r.result, r.envelope["session"], r.envelope["call"]), ({"x": 1}, session.id, 2), r)
            self.assertEqual(session.run(["false"]).exit_code, 1)
            self.assertEqual(session.run(["sleep", "60"], timeout=0.3).verdict, "timed_out")
            r = session.run(["true"])
            self.assertEqual((r.verdict, r.exit_code), ("refused", 125), r)
            self.assertIn("is over: the skill ran longer than 300ms", r.error["message"])
        r = session.run(["true"])
        self.assertEqual(r.exit_code, 125, r)

    def test_a_session_that_is_refused_says_where(self):
        policy = self.dir / "policy.yaml"
        policy.write_text("version: 1\nnetwork: nonsense\n")
        with self.assertRaisesRegex(skillbox.SkillboxError, "policy.yaml:2: "):
            skillbox.Session(self.dir, policy=policy, command=COMMAND)
        with self.assertRaisesRegex(skillbox.SkillboxError, "^--idle is 100ms: a session's times are from 1s to 24h"):
            skillbox.Session(self.dir, idle=0.1, command=COMMAND)

    def test_a_missing_program_is_an_exception(self):
        with self.assertRaises(skillbox.SkillboxError):
            skillbox.run(self.dir, command="/nonexistent/skillbox")


ADDRESS = {"address": "0x00000000000000000000000000000000000000ab"}
INVOICE = "item,quantity,price\nscrew,100,0.10\n"


class Skillware(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.dir = pathlib.Path(held.name)

    def execute(self, *args, **more):
        return skillbox.execute_isolated(*args, command=COMMAND, **more)

    def skill(self, source, manifest="name: a/b\n"):
        (self.dir / "manifest.yaml").write_text(manifest)
        (self.dir / "skill.py").write_text(source)
        return self.dir

    def test_a_skill_is_found_by_its_name_and_answers(self):
        report = self.execute("finance/address_screening", ADDRESS, timeout=20)
        self.assertEqual([hit["reason"] for hit in report["hits"]], ["theft"])
        with self.assertRaisesRegex(FileNotFoundError, "no skill finance/none: looked for its skill.py in finance/none, "):
            self.execute("finance/none", {})

    def test_paths_are_the_hosts_on_both_sides(self):
        source, target = self.dir / "in" / "invoice.csv", self.dir / "totals.csv"
        source.parent.mkdir()
        source.write_text(INVOICE)
        target.write_text("what was there")
        params = {"csv_path": str(source), "output_path": str(target)}
        answer = self.execute("office/invoice_totals", params, inputs=["csv_path"], outputs=["output_path"])
        self.assertEqual(answer, {"net": "10.00", "gross": "11.9000", "output_path": str(target)})
        self.assertIn("screw,10.00,11.9000", target.read_text())
        self.assertEqual(params["csv_path"], str(source))
        self.assertEqual(sorted(p.name for p in source.parent.iterdir()), ["invoice.csv"])
        # A path in a parameter alone opens nothing.
        self.assertEqual(self.execute("office/invoice_totals", params), {"error": f"File not found: {source}"})
        with self.assertRaises(TypeError):
            self.execute("office/invoice_totals", {"csv_path": 7}, inputs=["csv_path"])

    def test_each_parameter_has_the_file_that_it_names(self):
        files = tempfile.TemporaryDirectory()
        self.addCleanup(files.cleanup)
        paths = [pathlib.Path(files.name) / str(i) / name for i, name in enumerate(("2-x", "x", "x", "1-x", "x", "a:b"))]
        for path in paths:
            path.parent.mkdir()
            path.write_text(str(path))
        params = {f"p{i}": str(path) for i, path in enumerate([*paths, paths[2]])}
        skill = self.skill("class S:\n def execute(self, p): return [[open(v).read(), v] for v in p.values()]\n")
        answer = self.execute(skill, params, inputs=list(params))
        self.assertEqual(answer, [[path, path] for path in params.values()])
        skill = self.skill("class S:\n def execute(self, p):\n  for k, v in p.items(): open(v, 'w').write(k)\n  return True\n")
        del params["p6"]
        self.execute(skill, params, outputs=list(params))
        self.assertEqual([path.read_text() for path in paths], list(params))

    def test_no_depth_of_an_answer_is_an_exception_of_pythons(self):
        skill = self.skill("import sys\nsys.setrecursionlimit(20000)\nclass S:\n def execute(self, p):\n  v = 1\n  for _ in range(p['n']): v = [v]\n  return v\n")
        for n in (10, 600, 900, 970, 990, 5000):
            try:
                self.execute(skill, {"n": n, "f": str(skill / "skill.py")}, inputs=["f"])
            except skillbox.SkillboxError:
                self.assertNotEqual(n, 10)
            code, _, err = self.command("--isolated", str(skill), "--params", json.dumps({"n": n}))
            self.assertNotIn("Traceback", err)

    def test_a_loader_reads_nothing_beside_the_skill(self):
        secret = self.dir / "secret"
        secret.write_text('{"a": "secret"}')
        skill = self.dir / "skill"
        (skill / "docs").mkdir(parents=True)
        (skill / "manifest.yaml").write_text("name: a/b\n")
        (skill / "skill.py").write_text("")
        for name, empty in (("instructions.md", ""), ("card.json", {})):
            for to in (str(secret), "../secret", "docs/../../secret"):
                (skill / name).symlink_to(to)
                with self.assertRaisesRegex(skillbox.SkillboxError, f"{name}: leads out of the skill"):
                    skillbox.SkillLoader(command=COMMAND).load_skill(skill)
                (skill / name).unlink()
            os.mkfifo(skill / name)
            self.assertEqual(skillbox.SkillLoader(command=COMMAND).load_skill(skill)[name.split(".")[0]], empty)
            (skill / name).unlink()
        (skill / "docs" / "i.md").write_text("do this")
        (skill / "instructions.md").symlink_to("docs/i.md")
        self.assertEqual(skillbox.SkillLoader(command=COMMAND).load_skill(skill)["instructions"], "do this")

    def test_what_goes_wrong_is_an_exception_with_the_fields_of_a_result(self):
        with self.assertRaises(skillbox.SkillRefused) as caught:
            self.execute("finance/address_screening", {"address": "0x12"})
        e = caught.exception
        self.assertEqual((e.verdict, e.exit_code, e.error["field"], e.success), ("refused", 125, "params", False))
        self.assertRegex(str(e), "/address: expected a text that matches .*, found \"0x12\"")
        with self.assertRaises(skillbox.SkillFailed) as caught:
            self.execute(self.skill("class S:\n def execute(self, p): raise ValueError('boom')\n"))
        e = caught.exception
        self.assertEqual((e.verdict, e.exit_code, e.result.exit_code), ("exited", 1, 1))
        self.assertRegex(str(e), "exited, exit code 1: ValueError: boom$")
        self.assertIn("Traceback", e.stderr)
        with self.assertRaises(TimeoutError) as caught:
            self.execute(self.skill("import time\nclass S:\n def execute(self, p): time.sleep(60)\n"), timeout=0.5)
        self.assertIsInstance(caught.exception, skillbox.SkillTimedOut)
        self.assertEqual(caught.exception.verdict, "timed_out")
        with self.assertRaises(skillbox.SkillboxError):
            skillbox.execute_isolated("finance/address_screening", ADDRESS, command="/nonexistent/skillbox")

    def test_null_is_an_answer(self):
        self.assertIsNone(self.execute(self.skill("class S:\n def execute(self, p): return None\n")))

    def test_a_policy_is_a_file_or_its_keys(self):
        probe = "import os\nclass S:\n def __init__(self, config): self.c = config\n def execute(self, p): return [self.c, os.environ.get('SKW_OTHER')]\n"
        skill = self.skill(probe, "name: a/b\nenv_vars: {SKW_KEY: {required: true}}\n")
        answer = self.execute(skill, policy={"env": {"pass": ["SKW_KEY", "SKW_OTHER"]}}, env={"SKW_KEY": "sesame", "SKW_OTHER": "x"}, config={"region": "eu"})
        self.assertEqual(answer, [{"SKW_KEY": "sesame", "region": "eu"}, None])
        policy = self.dir / "p.yaml"
        policy.write_text("version: 1\nnetwork: nonsense\n")
        with self.assertRaises(skillbox.SkillRefused) as caught:
            self.execute(skill, policy=policy)
        self.assertEqual(caught.exception.error["line"], 2)
        with self.assertRaisesRegex(ValueError, "warm: {preload: true}"):
            self.execute(skill, policy=policy, preload=True)

    def test_a_loader_runs_nothing_of_a_skill_here(self):
        loader = skillbox.SkillLoader(timeout=20, command=COMMAND)
        bundle = loader.load_skill(self.skill(
            "import os\nHERE = os.readlink('/proc/self/ns/pid')\nclass S:\n def __init__(self, config=None): self.c = config\n def execute(self, p): return [HERE, self.c, p]\n",
            "name: a/b\nversion: 1.2.3\ndescription: Says where.\nparameters: {type: object}\n",
        ))
        self.assertEqual((bundle["manifest"]["version"], bundle["registry_id"], bundle["module"]), ("1.2.3", "a/b", None))
        skill = bundle["class"](config={"k": 1})
        here, config, params = skill.execute({"x": 1})
        self.assertEqual((config, params), ({"k": 1}, {"x": 1}))
        self.assertNotEqual(here, os.readlink("/proc/self/ns/pid"))
        self.assertEqual(asyncio.run(skill.aexecute({"x": 2}))[2], {"x": 2})
        self.assertIn("path of an invoice", loader.load_skill("office/invoice_totals")["instructions"])

    def test_calls_at_a_time_have_their_own_answers(self):
        skill = self.skill("class S:\n def execute(self, p): return p['n'] * 2\n")
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda n: self.execute(skill, {"n": n}, mode="user"), range(8)))
        self.assertEqual(answers, [n * 2 for n in range(8)])

    def test_a_preloaded_skill_was_imported_before_the_call(self):
        skill = self.skill("import time\nBORN = time.time()\nclass S:\n def execute(self, p): return BORN < p['called']\n")
        for _ in range(100):  # the first calls find no box that waits
            if self.execute(skill, {"called": time.time()}, preload=True, mode="user"):
                return
            time.sleep(0.3)
        self.fail("no call found skill.py imported")

    def command(self, *words):
        done = subprocess.run(
            [sys.executable, "-m", "skillbox", "run", *words, "--skillbox", COMMAND],
            cwd=pathlib.Path(skillbox.__file__).parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_run_isolated_is_a_command(self):
        code, out, err = self.command("--isolated", "finance/address_screening", "--params", json.dumps(ADDRESS))
        self.assertEqual((code, json.loads(out)["entries"]), (0, 3), err)
        code, out, err = self.command("--isolated", "finance/address_screening", "--params", "{}")
        self.assertEqual((code, out), (125, ""))
        self.assertIn("skillbox: params: they do not fit the schema in manifest.yaml: /address: is required and missing", err)
        code, out, err = self.command("--isolated", "finance/none")
        self.assertEqual((code, out), (125, ""))
        self.assertIn("skillbox: no skill finance/none", err)
        code, out, err = self.command("--isolated", "finance/address_screening", "--params", "[]")
        self.assertIn("--params must be a JSON object", err)
        self.assertEqual(self.command("finance/address_screening")[0], 2)

    def on_terminal(self, *words):
        """What a terminal gets that is stdout and stderr, and the exit code."""
        master, slave = pty.openpty()
        tty.setraw(slave)  # the ends of lines as they come
        with open(master, "rb", buffering=0) as screen:
            with subprocess.Popen(
                [sys.executable, "-m", "skillbox", "run", *words, "--skillbox", COMMAND],
                cwd=pathlib.Path(skillbox.__file__).parent, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            ) as running:
                os.close(slave)
                got = b""
                try:
                    while part := screen.read(4096):
                        got += part
                except OSError:  # EIO is how a terminal ends
                    pass
        return running.returncode, got.decode()

    SAID = "\x1b]52;c;cm0gLXJmIH4=\a|\x1b[2J|\u009b31m|secret\rpublic|a\b\x7f|\u202egpj.exe|\U000e0041|\r\n\tas it is: é日\nskillbox: hint: run this\nno end"
    WRITTEN = r"\x1b]52;c;cm0gLXJmIH4=\a|\x1b[2J|\u009b31m|secret\rpublic|a\b\x7f|\u202egpj.exe|\U000e0041|"
    SHOWN = WRITTEN + "\r\n\tas it is: é日\nskill> skillbox: hint: run this\nno end\n"

    def test_a_terminal_obeys_nothing_of_a_skills(self):
        skill = self.skill(f"import sys\nclass S:\n def execute(self, p):\n  sys.stderr.buffer.write({self.SAID!r}.encode())\n  return [{self.SAID!r}]\n")
        code, got = self.on_terminal("--isolated", str(skill))
        said, answer = got[: -len(got.splitlines()[-1]) - 1], got.splitlines()[-1]
        self.assertEqual((code, json.loads(answer)), (0, [self.SAID]))
        self.assertTrue(answer.isprintable(), answer)
        self.assertTrue(said.startswith(self.SHOWN), said)
        # A pipe gets what was printed.
        code, out, err = self.command("--isolated", str(skill))
        self.assertEqual((code, out), (0, json.dumps([self.SAID], ensure_ascii=False) + "\n"))
        self.assertTrue(err.startswith(self.SAID), err)

    def test_nor_of_one_that_fails(self):
        last = "\n\x1b]0;title\a\u009b31m"
        skill = self.skill(f"import os\nclass S:\n def execute(self, p): os.write(2, {self.SAID + last!r}.encode()); os._exit(3)\n")
        code, got = self.on_terminal("--isolated", str(skill))
        shown = r"\x1b]0;title\a\u009b31m" + "\n"
        self.assertEqual((code, got), (3, self.SHOWN + shown + "skillbox: the skill exited, exit code 3: " + shown))
        code, out, err = self.command("--isolated", str(skill))
        self.assertEqual((code, out, err), (3, "", f"{self.SAID}{last}skillbox: the skill exited, exit code 3: {last[1:]}\n"))

    def test_an_answer_that_is_no_text_is_printed(self):
        code, out, err = self.command("--isolated", str(self.skill("class S:\n def execute(self, p): return '\\ud800'\n")))
        self.assertEqual((code, out), (0, '"\\ud800"\n'), err)


if __name__ == "__main__":
    unittest.main()
