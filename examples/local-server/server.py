"""Answers POST / with the number of words in the body, and ends at POST /quit."""

import http.server
import json


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = json.dumps({"words": len(body.split())}).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        self.server.asked += 1
        self.server.over = self.path == "/quit"

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 8080), Handler)
server.asked, server.over = 0, False
while not server.over:
    server.handle_request()
print(json.dumps({"requests": server.asked}))
