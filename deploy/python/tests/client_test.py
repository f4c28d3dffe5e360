"""The client against a real agent: STOCKADE and STOCKADE_CONFIG say which; run by tests/tools/client_test.cc."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from stockade import Sandbox, SandboxError, ToolFailed

BINARY, CONFIG = os.environ["STOCKADE"], os.environ["STOCKADE_CONFIG"]
EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples" / "mcp_server.py"


def sandbox(policy="python-tool", **more):
    return Sandbox(policy=policy, binary=BINARY, config=CONFIG, **more)


class Runs(unittest.TestCase):
    def test_prints_and_exits(self):
        result = sandbox(session="s-42", tool="python", cause="prompt 7", labels={"a": "b"}).run(["python3", "-c", "print(40 + 2)"])
        self.assertEqual((result.stdout, result.exit_code, result.end, result.ok), (b"42\n", 0, "exited", True))
        self.assertTrue(result.sandbox_id.startswith("sbx_"))
        self.assertEqual(list(result.refusals), [])
        kinds = [event["kind"] for event in result.events]
        self.assertIn("exec", kinds)
        labels = result.events[0]["sandbox"]
        self.assertEqual((labels["session"], labels["labels"]), ("s-42", {"a": "b", "cause": "prompt 7"}))

    def test_what_is_refused_says_why(self):
        result = sandbox().run(["python3", "-c", "import os; print('before', flush=True); os.system('id')"])
        self.assertEqual((result.stdout, result.exit_code, result.end, result.ok), (b"before\n", 137, "policy", False))
        self.assertIn("/usr/bin/dash", result.reason)
        self.assertEqual([(one.code, one.lock, one.dry_run) for one in result.refusals], [("exec.denied", "bpf", False)])

    def test_a_tool_that_fails_is_a_result_or_an_exception(self):
        code = "import sys; sys.stderr.write('no'); sys.exit(3)"
        result = sandbox().run(["python3", "-c", code])
        self.assertEqual((result.exit_code, result.end, result.ok), (3, "exited", False))
        self.assertIn(b"no", result.stderr)
        with self.assertRaises(ToolFailed) as raised:
            sandbox().run(["python3", "-c", code], check=True)
        self.assertEqual(raised.exception.result.exit_code, 3)

    def test_input_inputs_and_outputs(self):
        with tempfile.TemporaryDirectory() as scratch:
            os.chmod(scratch, 0o755)
            given, taken = pathlib.Path(scratch, "in"), pathlib.Path(scratch, "out")
            given.mkdir()
            taken.mkdir()
            (given / "data").write_text("file ")
            code = "import sys; open('/out/sum', 'w').write(open('/in/data').read() + sys.stdin.read())"
            result = sandbox(inputs=given, outputs=taken).run(["python3", "-c", code], input="and input")
            self.assertTrue(result.ok, result.stderr)
            self.assertEqual((taken / "sum").read_text(), "file and input")

    def test_a_timeout_ends_it(self):
        result = sandbox(timeout=0.5).run(["python3", "-c", "import time; time.sleep(1000)"])
        self.assertEqual((result.exit_code, result.end), (137, "timeout"))

    def test_what_cannot_start_is_an_error_of_its_own(self):
        with self.assertRaisesRegex(SandboxError, "no-such-policy"):
            sandbox("no-such-policy").run(["true"])
        with self.assertRaisesRegex(SandboxError, "is Stockade installed"):
            Sandbox(policy="python-tool", binary="/nonexistent/stockade").run(["true"])
        with self.assertRaises(TypeError):
            sandbox().run("python3 -c 1")

    def test_a_command_that_is_not_there_is_the_tools_own_failure(self):
        self.assertEqual(sandbox().run(["no-such-program"]).exit_code, 127)


class Example(unittest.TestCase):
    def test_is_an_mcp_server(self):
        def call(number, code):
            return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": code}}}

        requests = [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
                    {"jsonrpc": "2.0", "method": "notifications/initialized"},
                    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, call(3, "print(6 * 7)"), call(4, "import os; os.system('id')"),
                    {"jsonrpc": "2.0", "id": 5, "method": "nothing"}]
        done = subprocess.run([sys.executable, str(EXAMPLE)], input="".join(json.dumps(one) + "\n" for one in requests), text=True,
                              capture_output=True, check=True, timeout=120)
        replies = {reply["id"]: reply for reply in map(json.loads, done.stdout.splitlines())}
        self.assertEqual(sorted(replies), [1, 2, 3, 4, 5])
        self.assertEqual(replies[2]["result"]["tools"][0]["name"], "run_python")
        self.assertEqual(replies[3]["result"], {"content": [{"type": "text", "text": "42\n"}], "isError": False})
        self.assertTrue(replies[4]["result"]["isError"])
        self.assertIn("the policy denies executing /usr/bin/dash", replies[4]["result"]["content"][0]["text"])
        self.assertEqual(replies[5]["error"]["code"], -32601)


if __name__ == "__main__":
    unittest.main()
