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

    def test_a_missing_program_is_an_exception(self):
        with self.assertRaises(skillbox.SkillboxError):
            skillbox.run(self.dir, command="/nonexistent/skillbox")


if __name__ == "__main__":
    unittest.main()
