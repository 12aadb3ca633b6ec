#!/usr/bin/env python3
"""Runs a build and prints the CPU time that it took, user and system, and the ten units that took longest.

    scripts/build-times.py CARGO-ARGUMENT...      as in: scripts/build-times.py test --workspace --no-run

What is built already takes no time: for a first build, name an empty folder with CARGO_TARGET_DIR.
"""

import glob
import json
import os
import re
import resource
import subprocess
import sys

SHOWN = 10


def timings(folder):
    """What cargo's newest report says of each unit."""
    reports = glob.glob(os.path.join(folder, "cargo-timings", "cargo-timing-*.html"))
    with open(max(reports, key=os.path.getmtime), encoding="utf-8") as report:
        data = re.search(r"const UNIT_DATA = (\[.*?\]);\n", report.read(), re.DOTALL)
    return json.loads(data.group(1))


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    status = subprocess.call([os.environ.get("CARGO", "cargo"), command, "--timings", *arguments])
    if status != 0:
        return status
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    units = timings(os.environ.get("CARGO_TARGET_DIR", "target"))
    seconds = used.ru_utime + used.ru_stime
    print(f"{seconds:.0f} s of CPU ({used.ru_utime:.0f} user, {used.ru_stime:.0f} system) for {len(units)} units; by the clock:")
    for unit in sorted(units, key=lambda unit: -unit["duration"])[:SHOWN]:
        print(f"{unit['duration']:7.1f} s  {unit['name']} {unit['version']} {unit['target'].strip()}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
