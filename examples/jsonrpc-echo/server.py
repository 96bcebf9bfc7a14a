"""A JSON-RPC 2.0 server over stdio, one message per line, until end of file.

Speaks enough of the Model Context Protocol for a client to list and call its one tool.
stdout belongs to the protocol: anything else goes to stderr.
"""

import json
import sys

LONGEST = 1 << 20  # characters of one message

PROTOCOLS = ("2025-06-18", "2025-03-26", "2024-11-05")  # newest first

TOOL = {
    "name": "echo",
    "description": "Returns the text it is given.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}


class RPCError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def initialize(params):
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in PROTOCOLS else PROTOCOLS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "jsonrpc-echo", "version": "1.0.0"},
    }


def call_tool(params):
    if params.get("name") != TOOL["name"]:
        raise RPCError(-32602, f"unknown tool: {params.get('name')}")
    arguments = params.get("arguments")
    text = arguments.get("text") if isinstance(arguments, dict) else None
    if not isinstance(text, str):
        return {"content": [{"type": "text", "text": '"text" must be a string'}], "isError": True}
    return {"content": [{"type": "text", "text": text}]}


METHODS = {
    "echo": lambda params: params,
    "initialize": initialize,
    "ping": lambda params: {},
    "tools/list": lambda params: {"tools": [TOOL]},
    "tools/call": call_tool,
}


def failure(identifier, code, message):
    return {"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message}}


def answer(request):
    """The response to one request, or None for a notification."""
    if not isinstance(request, dict) or request.get("jsonrpc") != "2.0" or not isinstance(request.get("method"), str):
        return failure(request.get("id") if isinstance(request, dict) else None, -32600, "not a JSON-RPC 2.0 request")
    name, params = request["method"], request.get("params", {})
    if "id" not in request:
        return None
    try:
        if name not in METHODS:
            raise RPCError(-32601, f"no method {name!r}")
        if name != "echo" and not isinstance(params, dict):
            raise RPCError(-32602, '"params" must be an object')
        return {"jsonrpc": "2.0", "id": request["id"], "result": METHODS[name](params)}
    except RPCError as err:
        return failure(request["id"], err.code, str(err))
    except Exception as err:  # one bad request must not end the others' server
        return failure(request["id"], -32603, f"{type(err).__name__}: {err}")


def reply(line):
    """The line to send back for a line received, or None."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as err:
        return failure(None, -32700, f"not JSON: {err}")
    if not isinstance(message, list):
        return answer(message)
    if not message:
        return failure(None, -32600, "an empty batch")
    return [response for response in map(answer, message) if response] or None


def main():
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # bytes that are no text are that line's error only
    while line := sys.stdin.readline(LONGEST + 1):
        if len(line) > LONGEST:
            while line and not line.endswith("\n"):
                line = sys.stdin.readline(LONGEST)
            response = failure(None, -32600, f"a message longer than {LONGEST} characters")
        elif line.isspace():
            continue
        else:
            response = reply(line)
        if response is not None:
            # Each answer is a line of its own and leaves at once: the other side waits for it.
            print(json.dumps(response), flush=True)


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        sys.stderr.close()  # the client is gone: nobody to tell
