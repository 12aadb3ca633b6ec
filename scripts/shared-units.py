#!/usr/bin/env python3
"""Lists what `make demo` compiles of other people's crates and `make test` would compile again, and fails if there is any.

    scripts/shared-units.py DEMO-ARGUMENT...

The arguments are those that the Makefile gives to `cargo build` for the demo. A crate is compiled again where its features,
its profile or any crate below it differ; a block in demo/Cargo.toml names the features that the demo does not need but shares.
"""

import json
import os
import subprocess
import sys

CARGO = os.environ.get("CARGO", "cargo")
# What is worth being built again, for what it would drag into the demo.
MAY_DIFFER = {
    "sqlx": "the facade over the drivers: the demo does without PostgreSQL's",
    "sqlx-core": "the demo does without TLS",
    "sqlx-sqlite": "what is built on it",
}


def units(*arguments):
    """The units of a build, each with the key that decides whether a compiled one serves."""
    command = [CARGO, *arguments, "--locked", "--unit-graph", "-Z", "unstable-options"]
    environment = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    graph = json.loads(printed)["units"]
    keys = [None] * len(graph)

    def key(index):
        if keys[index] is None:
            unit = graph[index]
            below = sorted(key(dependency["index"]) for dependency in unit["dependencies"])
            keys[index] = hash((own(unit), tuple(below)))
        return keys[index]

    return [(unit, key(index)) for index, unit in enumerate(graph)]


def place(unit):
    return (unit["pkg_id"], *unit["target"]["kind"], unit["target"]["name"], unit["mode"], unit["platform"])


def own(unit):
    # Tests and what they are built from have a profile of another name.
    profile = {name: value for name, value in unit["profile"].items() if name != "name"}
    return json.dumps([place(unit), profile, sorted(unit["features"])], sort_keys=True)


def is_ours(unit):
    return unit["pkg_id"].startswith("path+")


def name(unit):
    return unit["pkg_id"].rsplit("/", 1)[-1].rsplit("#", 1)[-1]


def difference(unit, others):
    """How a unit differs from the nearest of the same place, if it does by itself."""
    candidates = [other for other in others if place(other) == place(unit)]
    if any(own(other) == own(unit) for other in candidates):
        return None
    if not candidates:
        return "not built"
    demo = set(unit["features"])
    nearest = min(candidates, key=lambda other: len(demo ^ set(other["features"])))
    test = set(nearest["features"])
    changes = [f"+{feature}" for feature in sorted(test - demo)] + [f"-{feature}" for feature in sorted(demo - test)]
    return "features " + " ".join(changes) if changes else "another profile"


def main():
    demo = units("build", *sys.argv[1:])
    test = units("test", "--workspace")
    known = {key for _, key in test}
    again = [unit for unit, key in demo if key not in known and not is_ours(unit)]
    allowed = [unit for unit in again if name(unit).split("@")[0] in MAY_DIFFER]
    again = [unit for unit in again if unit not in allowed]
    if not again:
        return 0
    others = [unit for unit, _ in test]
    print("`make test` would compile again, after `make demo`:")
    for unit in again:
        why = difference(unit, others) or "something below it"
        print(f"  {name(unit)} ({unit['mode']}): {why}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
