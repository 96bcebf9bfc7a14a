"""Every process starts two more, eight generations deep: 511 in all, each of which ends within seconds. Outside a box there are none."""

import os
import time

if os.path.abspath(__file__) != "/skill/main.py":
    raise SystemExit("only in a box")


def breed(generation):
    for _ in range(2):
        for _ in range(20):  # as often as it is refused
            try:
                pid = os.fork()
            except OSError:
                continue
            if pid == 0:
                if generation > 1:
                    breed(generation - 1)
                time.sleep(3)
                os._exit(0)
            break


breed(8)
time.sleep(3)
