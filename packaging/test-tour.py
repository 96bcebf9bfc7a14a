"""What an ordinary user does after the package is installed, in the directory of the examples.

    test-tour.py tour system|rootless SECONDS    who is to run the boxes: the machine's service, or a helper of the user's own
    test-tour.py serve                           the server that the tour's rules lead to
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

SERVER = "198.51.100.2"
TCP, UDP = 8080, 8053

failed = []
began = time.monotonic()


def check(claim, held, seen=""):
    print("%s %3ds %s" % ("ok  " if held else "FAIL", time.monotonic() - began, claim), flush=True)
    if not held:
        failed.append(claim)
        print("     " + str(seen).replace("\n", "\n     ")[:3000], flush=True)


def skillbox(*args):
    return subprocess.run(["skillbox", *args], capture_output=True, text=True, timeout=240)


def run(*args):
    """The result of `skillbox exec --json`, and what it said besides."""
    done = skillbox("exec", "--json", *args)
    try:
        return json.loads(done.stdout), done.stderr
    except ValueError:
        return {}, f"exit {done.returncode}: {done.stdout}{done.stderr}"


def skill(where, code):
    """A skill of one Python file."""
    bundle = pathlib.Path(tempfile.mkdtemp(dir=where))
    (bundle / "skillbox.yaml").write_text("version: 1\nname: tour\ncommand: [python3, main.py]\n")
    (bundle / "main.py").write_text(code)
    return str(bundle)


def policy(where, text):
    path = pathlib.Path(tempfile.mkdtemp(dir=where)) / "policy.yaml"
    path.write_text("version: 1\nname: tour\n" + text)
    return str(path)


def tour(mode):
    versions = skillbox("version", "--json")
    check("the three programs are of one build", versions.returncode == 0 and json.loads(versions.stdout)["warnings"] == [], versions.stdout + versions.stderr)

    r, err = run("--params", '{"text":"a b a"}', "word-count")
    check("a skill counts words", r.get("success") and r["result"]["words"] == 3, (r, err))
    layers = r.get("sandbox", {}).get("layers", {})
    check("a control group holds cpu, memory and pids", all("cgroup" in layers.get(k, "") for k in ("cpu", "memory", "pids")), (r, err))
    print("     %s: %s" % (r.get("sandbox", {}).get("mode"), layers), flush=True)

    with tempfile.TemporaryDirectory() as where:
        limits(where)
        network(where, mode)
        r, err = run("--input", "pdf-text/sample.pdf:a.pdf", "--output", where + "/out", "pdf-text")
        check("files go in by name", r.get("success"), (r, err))
        bad = policy(where, "newtork: {}\n")
        done = skillbox("policy", "check", bad)
        check("a mistake in a policy is an error with its place", done.returncode == 1 and ":3:1: unknown key" in done.stdout, done)

    r, err = run("--params", "{}", "hostile")
    check("the hostile skill does not get out", r.get("result") and r["result"]["escaped"] == 0 and len(r["result"]["attempts"]) > 40, (r, err))

    done = skillbox("plan", "word-count")
    check("plan shows the plan", done.returncode == 0 and "seccomp" in done.stdout, done)
    done = skillbox("exec", "--mode", "user", "--params", '{"text":"a"}', "word-count")
    check("a service of the user's own runs a skill", done.returncode == 0, done)
    done = skillbox("ps")
    check("ps lists what is ready", done.returncode == 0 and "READY" in done.stdout, done)
    done = skillbox("doctor")
    check("doctor finds that all works", done.returncode == 0 and "FAIL" not in done.stdout, done.stdout + done.stderr)
    for line in done.stdout.splitlines():
        if not line.startswith("ok"):
            print("     doctor: " + line)


def limits(where):
    hungry = skill(where, "x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint(len(x))\n")
    r, err = run("--policy", policy(where, "resources: {memory: 64Mi, cpu: 0.5, pids: 20}\n"), hungry)
    check("a skill that takes more than its memory is killed for it", r.get("verdict") == "out_of_memory", (r, err))


CONNECT = """
import json, socket
s = socket.create_connection(("%s", %d), 5)
tcp = s.makefile().readline().strip()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(5)
got = {"tcp": tcp}
for port in (%d, %d):
    try:
        u.sendto(b"ask", ("%s", port))
        got[port] = u.recvfrom(100)[0].decode()
    except OSError as e:
        got[port] = "refused"
print(json.dumps(got))
""" % (SERVER, TCP, UDP, UDP + 1, SERVER)


def network(where, mode):
    r, err = run(skill(where, CONNECT))
    check("without a policy there is no network", r and r["exit_code"] == 1 and "unreachable" in r["stderr"], (r, err))
    rules = 'network: {egress: [{cidrs: [%s/32], ports: [%d, "%d/udp"]}]}\n' % (SERVER, TCP, UDP)
    r, err = run("--policy", policy(where, rules), skill(where, CONNECT))
    if mode == "system":
        check("the policy opens TCP and UDP by a link of the box's own, and no other port",
              r.get("result") == {"tcp": "hello", str(UDP): "ask", str(UDP + 1): "refused"}, (r, err))
        layer = r.get("sandbox", {}).get("layers", {}).get("network", "")
        check("the result says that it was a link: " + layer, "link" in layer or "veth" in layer, (r, err))
    else:
        check("UDP by an address is refused where no link can be had", "link" in str(r.get("error")), (r, err))


def serve():
    """A line to each TCP client; to UDP clients on two ports their own words."""
    def echo(port):
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        u.bind((SERVER, port))
        while True:
            text, sender = u.recvfrom(100)
            u.sendto(text, sender)
    for port in (UDP, UDP + 1):
        threading.Thread(target=echo, args=(port,), daemon=True).start()
    listener = socket.create_server((SERVER, TCP))
    while True:
        client, _ = listener.accept()
        client.sendall(b"hello\n")
        client.close()


if sys.argv[1] == "serve":
    serve()
began -= int(sys.argv[3])  # the seconds that the surrounding test has taken so far
tour(sys.argv[2])
os._exit(1 if failed else 0)
