"""OCI images of the filter, the backend and the ledger: writes, pushes and pulls them.

An image is one manifest with one layer, in an OCI layout folder. The same input gives the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile

import jsonschema
import oras.defaults
import oras.oci
import oras.schemas
import requests
from oras.layout import NewLayout, NewLayoutFromRegistry

import registry

LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
# The one tag of a layout folder.
TAG = "latest"
# The user of the services' images, who owns /data.
NOBODY = 65532
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)


class Tar:
    """A tar whose bytes depend on nothing but its entries."""

    def __init__(self):
        self._bytes = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._bytes, mode="w", format=tarfile.USTAR_FORMAT)

    def file(self, name, content, mode=0o644):
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), mode
        self._tar.addfile(entry, io.BytesIO(content))

    def folder(self, name, mode=0o755, owner=0):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, owner, owner
        self._tar.addfile(entry)

    def bytes(self):
        self._tar.close()
        return self._bytes.getvalue()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def as_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def write_layout(folder, tar, process, name, architecture):
    """Writes an image and returns its digest."""
    # `docker load` keeps a name as it stands, and `docker run` completes one that has no host: with a host, both mean the same.
    name = f"localhost/{name}:{VERSION}"
    shutil.rmtree(folder, ignore_errors=True)
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(content):
        path = blobs / sha256(content)
        path.write_bytes(content)
        return path

    layer = blob(gzip.compress(tar, mtime=0))
    config = blob(as_json({
        "architecture": architecture,
        "os": "linux",
        "config": {"Labels": {"org.opencontainers.image.version": VERSION}, **process},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(tar)}"]},
    }))
    manifest = oras.oci.NewManifest()
    manifest["config"], _ = oras.oci.ManifestConfig(str(config), CONFIG_TYPE)
    manifest["layers"] = [oras.oci.NewLayer(str(layer), LAYER_TYPE)]
    manifest["annotations"] = {"org.opencontainers.image.version": VERSION}
    jsonschema.validate(manifest, schema=oras.schemas.manifest)
    content = as_json(manifest)
    digest = f"sha256:{sha256(content)}"
    blob(content)
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [{
            "mediaType": oras.defaults.default_manifest_media_type,
            "digest": digest,
            "size": len(content),
            "annotations": {
                oras.defaults.oci_ref_name_annotation: TAG,
                # By which `docker load` names it, where Docker keeps images in containerd.
                "io.containerd.image.name": name,
            },
        }],
    }
    jsonschema.validate(index, schema=oras.schemas.index)
    (folder / "index.json").write_bytes(as_json(index))
    (folder / "oci-layout").write_bytes(as_json({"imageLayoutVersion": "1.0.0"}))
    # What `docker load` reads where Docker keeps images itself.
    archive = [{
        "Config": str(config.relative_to(folder)),
        "RepoTags": [name],
        "Layers": [str(layer.relative_to(folder))],
    }]
    (folder / "manifest.json").write_bytes(as_json(archive))
    NewLayout(str(folder))
    return digest


def layout_digest(folder):
    """The digest of the image in a layout folder."""
    NewLayout(str(folder))
    return json.loads((folder / "index.json").read_text())["manifests"][0]["digest"]


def filter_image(arguments):
    module = arguments.module.read_bytes()
    if not module.startswith(b"\0asm"):
        sys.exit(f"{arguments.module} is not a Wasm module")
    tar = Tar()
    # The name that Istio and Envoy Gateway look for.
    tar.file("plugin.wasm", module)
    # Wasm has no platform. The fetchers of Istio and Envoy Gateway take this one where they are to choose.
    digest = write_layout(arguments.layout, tar.bytes(), {}, "weir/filter", "amd64")
    print(f"image  {digest}")
    print(f"module sha256:{sha256(module)}")


def libraries(binary):
    """The files that the loader maps into `binary`, by the paths at which it looks for them."""
    listed = subprocess.run(["ldd", str(binary)], check=True, capture_output=True, text=True).stdout
    missing = re.findall(r"(\S+) => not found", listed)
    if missing:
        sys.exit(f"{binary} needs what is not here: {', '.join(missing)}")
    # "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)" and "/lib64/ld-linux-x86-64.so.2 (0x…)"
    return sorted(set(re.findall(r"(/\S+) \(0x", listed)))


def service_image(arguments, name, program, verifies, process):
    """Writes the image of a program, with the libraries and the certificates that it needs."""
    certificates = pathlib.Path(CERTIFICATES)
    if not certificates.exists():
        sys.exit(f"no {CERTIFICATES}, by which {verifies} (Debian, Ubuntu: ca-certificates)")
    files = {program: (arguments.binary.read_bytes(), 0o755), CERTIFICATES: (certificates.read_bytes(), 0o644)}
    files.update((path, (pathlib.Path(path).read_bytes(), 0o755)) for path in libraries(arguments.binary))
    tar = Tar()
    for parent in sorted({str(parent) for path in files for parent in pathlib.Path(path).parents} - {"/"}):
        tar.folder(parent.lstrip("/"))
    for volume in process.get("Volumes", {}):
        tar.folder(volume.lstrip("/"), owner=NOBODY)
    tar.folder("tmp", mode=0o1777)
    for path, (content, mode) in sorted(files.items()):
        tar.file(path.lstrip("/"), content, mode)
    machine = platform.machine()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    process = {"Entrypoint": [program], "Cmd": ["serve"], "User": f"{NOBODY}:{NOBODY}", **process}
    digest = write_layout(arguments.layout, tar.bytes(), process, name, architecture)
    print(f"image  {digest}")


def backend_image(arguments):
    process = {
        "Env": [
            "PATH=/usr/bin",
            "WEIR_DATABASE=sqlite:/data/weir.db",
            "WEIR_LISTEN=0.0.0.0:8081",
            "WEIR_INTERNAL_LISTEN=0.0.0.0:8082",
        ],
        "ExposedPorts": {"8081/tcp": {}, "8082/tcp": {}},
        "Volumes": {"/data": {}},
        "WorkingDir": "/data",
    }
    service_image(arguments, "weir/backend", "/usr/bin/backend", "webhooks verify receivers", process)


def ledger_image(arguments):
    process = {
        "Env": ["PATH=/usr/bin", "WEIR_LEDGER_LISTEN=[::]:8083"],
        "ExposedPorts": {"8083/tcp": {}},
        "WorkingDir": "/",
    }
    service_image(arguments, "weir/ledger", "/usr/bin/weir-ledger", "the ledger verifies its store", process)


def push(arguments):
    if "/" not in arguments.reference or ":" not in arguments.reference.rsplit("/", 1)[-1]:
        sys.exit(f"{arguments.reference}: expected <registry>/<name>:<tag>")
    digest = layout_digest(arguments.layout)
    client = registry.Client(arguments.reference, "pull,push", arguments.plain_http)
    answer = NewLayout(str(arguments.layout)).push_to_registry(client, arguments.reference, TAG)
    pushed = answer.headers.get("Docker-Content-Digest")
    if pushed != digest:
        sys.exit(f"the registry has {pushed}, and not {digest}")
    print(f"pushed {arguments.reference}@{digest}")


def pull(arguments):
    client = registry.Client(arguments.reference, "pull", arguments.plain_http)
    NewLayoutFromRegistry(str(arguments.layout), client, arguments.reference)
    print(f"pulled {layout_digest(arguments.layout)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)

    def command(name, run, *positional):
        sub = commands.add_parser(name)
        for argument, kind in positional:
            sub.add_argument(argument, type=kind)
        sub.set_defaults(run=run)
        return sub

    path = pathlib.Path
    for name, run, built in (
        ("filter", filter_image, "module"),
        ("backend", backend_image, "binary"),
        ("ledger", ledger_image, "binary"),
    ):
        command(name, run, (built, path), ("layout", path))
    for transfer in (
        command("push", push, ("layout", path), ("reference", str)),
        command("pull", pull, ("reference", str), ("layout", path)),
    ):
        transfer.add_argument("--plain-http", action="store_true", help="reach the registry without TLS")
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except requests.RequestException as error:
        sys.exit(f"{arguments.reference}: {registry.explained(error)}")
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
