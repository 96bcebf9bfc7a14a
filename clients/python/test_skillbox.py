"""Tests of skillbox.py, run by the integration tests: SKILLBOX names the command, SKILLBOX_EXAMPLES the examples' directory."""

import os
import pathlib
import tempfile
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


if __name__ == "__main__":
    unittest.main()
