//! `envoy/nginx/nginx.conf`, as far as it can be checked without `ngx_wasm_module`: a stock nginx reads all but the directives of that
//! module, and the filter's configuration runs in the simulator by the module's rules.

use std::path::Path;
use std::process::Command;

use host_sim::Flavour;
use serde_json::Value;
use tests::envoy::{Setup, Upstream};
use tests::exchange::{Request, get};
use tests::gateway::{Gateway as _, Simulator, within_one};
use tests::policy::Policy;
use tests::stage::MINUTE;

use crate::tools::{run, text};

const FILE: &str = "envoy/nginx/nginx.conf";
/// nginx refuses an argument that does not fit into its buffer for reading (NGX_CONF_BUFFER).
const LONGEST_ARGUMENT: usize = 4096;

/// The file without the directives of the module, and the arguments of `proxy_wasm`.
fn parts() -> (String, String, String) {
    let text = text(FILE);
    let (before, rest) = text.split_once("\nwasm {\n").expect("a wasm block");
    let (wasm, after) = rest.split_once("\n}\n").expect("the end of the block");
    let (http, rest) = after.split_once("proxy_wasm weir '").expect("the filter");
    let (configuration, end) = rest.split_once("';\n").expect("the end of its configuration");
    (format!("{before}\n{http}{end}"), wasm.to_owned(), configuration.to_owned())
}

#[test]
fn a_stock_nginx_takes_all_but_the_directives_of_the_module() {
    let (stock, wasm, _) = parts();
    let folder = tempfile::tempdir().unwrap();
    let check = |configuration: &str| {
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        // Debian has it where only root's PATH leads.
        let name = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
        let pid = format!("pid {};", folder.path().join("pid").display());
        run(Command::new(name).args(["-t", "-e", "stderr", "-g", &pid, "-c"]).arg(file))
    };
    let (taken, said) = check(&stock);
    assert!(taken, "{said}");
    let (taken, said) = check(&stock.replace("proxy_pass", "proxy_pas"));
    assert!(!taken && said.contains("unknown directive \"proxy_pas\""), "{said}");
    // The module, no resolver of someone else's, and a zone for all keys that gives no quota back.
    let directives = wasm.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(
        directives.collect::<Vec<_>>(),
        ["module weir /etc/nginx/filter.wasm;", "resolver 127.0.0.1;", "shm_kv * 64m eviction=none;"]
    );
}

#[test]
fn its_configuration_is_the_contract_by_the_rules_of_the_module() {
    let (.., configuration) = parts();
    assert!(configuration.len() < LONGEST_ARGUMENT, "{} bytes", configuration.len());
    assert!(!configuration.contains(['\'', '\\']), "nginx reads these");
    let configuration: Value = serde_json::from_str(&configuration).unwrap();
    let deployed = Policy::deployed().unwrap();
    for field in ["plans", "classes", "exempt"] {
        assert_eq!(configuration[field], deployed.as_value()[field]);
    }
    let setup = Setup::new(Policy::from(configuration), Upstream::DirectResponse);
    let nginx = Simulator::start(Flavour::Ngx, &setup).unwrap();
    let status = |request: Request| nginx.send(&request).status();
    let statuses =
        within_one(&nginx, MINUTE.0, MINUTE.1, || [(); 61].map(|()| status(get("/links").key("try-free"))));
    assert_eq!(statuses[..60], [200; 60]);
    assert_eq!(statuses[60], 429);
    assert_eq!(status(get("/analytics").key("try-free")), 403);
    assert_eq!([(); 3].map(|()| status(get("/analytics").key("try-pro"))), [200, 200, 429]);
    assert_eq!(status(get("/r/abc")), 200);
}
