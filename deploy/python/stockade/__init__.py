"""Run untrusted tools in Stockade's sandboxes.

    from stockade import Sandbox

    result = Sandbox(policy="python-tool", session="s-42").run(["python3", "-c", "print(40 + 2)"])
    print(result.stdout, result.exit_code)
    for refusal in result.refusals:
        print(refusal.reason, refusal.suggestion)
"""
from .sandbox import Refusal, Result, Sandbox, SandboxError, ToolFailed

__all__ = ["Refusal", "Result", "Sandbox", "SandboxError", "ToolFailed"]
__version__ = "0.1.0"
