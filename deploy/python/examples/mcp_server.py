#!/usr/bin/env python3
"""An MCP server over standard input and output whose one tool runs Python code in a sandbox: what a model wrote never runs beside you.

    python3 mcp_server.py [POLICY]          # python-tool where none is named
"""
import json
import os
import sys

from stockade import Sandbox, SandboxError

TOOL = {
    "name": "run_python",
    "description": "Runs Python code in a sandbox without network and gives back what it printed.",
    "inputSchema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
}


def call(sandbox, code):
    result = sandbox.run(["python3", "-c", code])
    text = result.text
    for refusal in result.refusals:
        text += f"\n[refused: {refusal.reason}]"
    if result.reason:
        text += f"\n[ended: {result.reason}]"
    return {"content": [{"type": "text", "text": text}], "isError": not result.ok}


def answer(sandbox, request):
    method, params = request.get("method"), request.get("params") or {}
    if method == "initialize":
        return {"protocolVersion": params.get("protocolVersion", "2025-06-18"), "capabilities": {"tools": {}},
                "serverInfo": {"name": "stockade-example", "version": "0.1.0"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call" and params.get("name") == TOOL["name"]:
        return call(sandbox, str((params.get("arguments") or {}).get("code", "")))
    raise LookupError(method)


def main():
    config = os.environ.get("STOCKADE_CONFIG")
    sandbox = Sandbox(policy=sys.argv[1] if len(sys.argv) > 1 else "python-tool", tool="python", timeout=30,
                      binary=os.environ.get("STOCKADE", "stockade"), config=config)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue  # a notification asks for no answer
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(sandbox, request)
        except LookupError:
            reply["error"] = {"code": -32601, "message": f"there is no {request.get('method')}"}
        except SandboxError as error:
            reply["error"] = {"code": -32000, "message": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
