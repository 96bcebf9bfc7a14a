import json
import sys

print("Hello, %s!" % json.load(sys.stdin).get("name", "world"))
