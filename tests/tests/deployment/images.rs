//! `make image`; the image that a registry has; and the services' images without anything around them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tests::artifacts;
use tests::client::Client;
use tests::exchange::get;
use tests::process::Process;

use crate::registry::Registry;
use crate::tools::{run, succeed};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

pub(crate) fn script(arguments: &[&str]) -> Command {
    let mut script = Command::new(artifacts::root().join("scripts/image.sh"));
    script.args(arguments);
    script
}

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// An image in a folder.
pub(crate) struct Layout {
    pub(crate) folder: PathBuf,
    /// What the script printed.
    said: String,
}

impl Layout {
    pub(crate) fn of_filter(folder: PathBuf) -> Self {
        let module = artifacts::filter_wasm();
        let said = succeed(script(&["filter"]).arg(module).arg(&folder));
        Self { folder, said }
    }

    pub(crate) fn digest(&self) -> &str {
        self.said.lines().find_map(|line| line.strip_prefix("image")).unwrap().trim()
    }

    fn blob(&self, digest: &str) -> Vec<u8> {
        std::fs::read(self.folder.join("blobs").join(digest.replace(':', "/"))).unwrap()
    }
}

/// What is in an image's only layer, unpacked.
fn unpack(layer: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("layer.tar.gz");
    std::fs::write(&archive, layer).unwrap();
    succeed(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()));
    std::fs::remove_file(archive).unwrap();
    folder
}

#[test]
fn an_image_is_the_same_byte_for_byte_on_each_run() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| Layout::of_filter(folder.path().join(name)));
    assert_eq!(one.said, other.said);
    succeed(Command::new("diff").arg("-r").arg(&one.folder).arg(&other.folder));
    let module = std::fs::read(artifacts::filter_wasm()).unwrap();
    assert_eq!(one.said, format!("image  {}\nmodule {}\n", one.digest(), sha256(&module)));
}

#[test]
fn the_module_that_a_gateway_pulls_is_the_one_that_was_built() {
    let folder = tempfile::tempdir().unwrap();
    let image = Layout::of_filter(folder.path().join("image"));
    let registry = Registry::start();
    let reference = registry.reference("weir/filter:0.1.0");
    let pushed = succeed(script(&["push"]).arg(&image.folder).arg(&reference));
    assert_eq!(pushed, format!("pushed {reference}@{}\n", image.digest()));

    // As the fetchers of Istio and Envoy Gateway do: by tag, and by the digest that a manifest pins.
    for by in ["0.1.0", image.digest()] {
        let request = get(format!("/v2/weir/filter/manifests/{by}")).header("accept", MANIFEST);
        let answer = registry.client().send(&request).unwrap();
        assert_eq!((answer.status(), answer.header("content-type")), (200, Some(MANIFEST)), "{answer}");
        assert_eq!(sha256(answer.body()), image.digest());
        let manifest = answer.json().unwrap();
        assert_eq!(manifest["mediaType"], MANIFEST);
        let layers = manifest["layers"].as_array().unwrap();
        let layer = layers.last().unwrap();
        assert_eq!(
            (layers.len(), &layer["mediaType"]),
            (1, &"application/vnd.oci.image.layer.v1.tar+gzip".into())
        );
        let layer = get(format!("/v2/weir/filter/blobs/{}", layer["digest"].as_str().unwrap()));
        let unpacked = unpack(registry.client().send(&layer).unwrap().body());
        let module = std::fs::read(unpacked.path().join("plugin.wasm")).unwrap();
        assert!(module == std::fs::read(artifacts::filter_wasm()).unwrap(), "another module");
    }

    let pulled = folder.path().join("pulled");
    let said = succeed(script(&["pull", &reference]).arg(&pulled));
    assert_eq!(said, format!("pulled {}\n", image.digest()));
    for name in std::fs::read_dir(image.folder.join("blobs/sha256")).unwrap() {
        let name = name.unwrap().file_name();
        let [one, other] = [&image.folder, &pulled].map(|from| from.join("blobs/sha256").join(&name));
        assert!(std::fs::read(one).unwrap() == std::fs::read(other).unwrap(), "{name:?}");
    }
}

#[test]
fn what_is_not_an_image_or_not_a_reference_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = Layout::of_filter(folder.path().join("image"));
    for reference in ["", "weir", "registry.example.com/weir/filter"] {
        let (pushed, said) = run(script(&["push"]).arg(&image.folder).arg(reference));
        assert!(!pushed && said.contains("expected <registry>/<name>:<tag>"), "{reference}: {said}");
    }
    let text = artifacts::root().join("README.md");
    let (written, said) = run(script(&["filter"]).arg(text).arg(folder.path().join("text")));
    assert!(!written && said.contains("is not a Wasm module"), "{said}");
    // A layer that was changed is not pushed under the digest of the old one.
    let digest = image.digest().to_owned();
    let manifest: Value = serde_json::from_slice(&image.blob(&digest)).unwrap();
    let layer = manifest["layers"][0]["digest"].as_str().unwrap();
    std::fs::write(image.folder.join("blobs").join(layer.replace(':', "/")), "changed").unwrap();
    let registry = Registry::start();
    let (pushed, said) =
        run(script(&["push"]).arg(&image.folder).arg(registry.reference("weir/filter:0.1.0")));
    assert!(!pushed, "{said}");
}

/// `docker load` reads `index.json` where Docker keeps images in containerd, and `manifest.json` where it does not.
#[cfg(target_os = "linux")]
#[test]
fn both_image_stores_of_docker_load_the_services_under_the_names_that_compose_runs() {
    //  image, compose file, service
    for (image, file, service) in [
        ("backend", "envoy/compose.yaml", "backend"),
        ("backend", "envoy/fleet/compose.yaml", "backend"),
        ("ledger", "envoy/fleet/compose.yaml", "ledger-1"),
        ("ledger", "envoy/fleet/compose.yaml", "ledger-2"),
    ] {
        let compose = tests::policy::yaml(file).unwrap();
        assert_loads_as(&compose["services"][service]["image"], image);
    }
}

#[cfg(target_os = "linux")]
fn assert_loads_as(name: &Value, image: &str) {
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("image");
    // Any program will do.
    let said = succeed(script(&[image, "/bin/true"]).arg(&layout));
    let image = Layout { folder: layout, said };
    let read = |file: &str| -> Value {
        serde_json::from_slice(&std::fs::read(image.folder.join(file)).unwrap()).unwrap()
    };
    let index = read("index.json");
    assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
    assert_eq!(&index["manifests"][0]["annotations"]["io.containerd.image.name"], name);

    let archive = read("manifest.json");
    assert_eq!(archive[0]["RepoTags"], serde_json::json!([name]));
    let manifest: Value = serde_json::from_slice(&image.blob(image.digest())).unwrap();
    let path = |blob: &Value| format!("blobs/{}", blob["digest"].as_str().unwrap().replace(':', "/"));
    assert_eq!(archive[0]["Config"], path(&manifest["config"]));
    assert_eq!(archive[0]["Layers"], serde_json::json!([path(&manifest["layers"][0])]));
}

/// A program in its image, with nothing of this machine but a network. What has a listener has it at a free port.
#[cfg(target_os = "linux")]
struct Contained {
    process: Process,
    root: TempDir,
}

#[cfg(target_os = "linux")]
impl Contained {
    /// The image holds Linux programs.
    fn start(name: &'static str, program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = folder.path().join("image");
        let said = succeed(script(&[name]).arg(program).arg(&layout));
        let image = Layout { folder: layout, said };
        let manifest: Value = serde_json::from_slice(&image.blob(image.digest())).unwrap();
        let config = image.blob(manifest["config"]["digest"].as_str().unwrap());
        let config: Value = serde_json::from_slice(&config).unwrap();
        let config = &config["config"];
        let root = unpack(&image.blob(manifest["layers"][0]["digest"].as_str().unwrap()));

        // Root enters the image as its user does; anyone else as the root of a namespace.
        let id = succeed(Command::new("id").arg("-u"));
        let mut enter;
        if id.trim() == "0" {
            enter = Command::new("chroot");
            enter.arg(format!("--userspec={}", config["User"].as_str().unwrap())).arg(root.path());
        } else {
            enter = Command::new("unshare");
            enter.arg("--map-root-user").arg("--root").arg(root.path());
        }
        enter.env_clear();
        for variable in config["Env"].as_array().unwrap() {
            let (name, value) = variable.as_str().unwrap().split_once('=').unwrap();
            enter.env(name, if name.ends_with("LISTEN") { "127.0.0.1:0" } else { value });
        }
        // The system's own search path finds chroot.
        enter.env("PATH", std::env::var_os("PATH").unwrap());
        for words in [&config["Entrypoint"], &config["Cmd"]] {
            enter.args(words.as_array().unwrap().iter().map(|word| word.as_str().unwrap()));
        }
        Self { process: Process::start(name, &mut enter).unwrap(), root }
    }

    fn client(&self) -> Client {
        let listening = |line: &str| line.strip_prefix("listening on http://")?.parse().ok();
        Client::to(self.process.wait_for(listening).unwrap()).unwrap()
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_backend_serves_from_its_image_and_nothing_else() {
    let backend = Contained::start("backend", artifacts::command("backend"));
    let answer = backend.client().send(&get("/links")).unwrap();
    assert_eq!((answer.status(), answer.error_code().as_deref()), (401, Some("unauthorized")), "{answer}");
    assert!(backend.root.path().join("data/weir.db").exists(), "the database is on the volume");
}

#[cfg(target_os = "linux")]
#[test]
fn the_ledger_serves_from_its_image_and_nothing_else() {
    let ledger = Contained::start("ledger", artifacts::command("weir-ledger"));
    assert_eq!(ledger.client().send(&get("/healthz")).unwrap().status(), 200);
}
