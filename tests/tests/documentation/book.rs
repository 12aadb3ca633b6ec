//! The pages of `docs/`, `README.md` and `envoy/`: links lead somewhere, configurations load, and what is named exists.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use filter::config::Config;
use serde_json::{Value, json};
use tests::artifacts;

use crate::pages::{Page, all, book};
use crate::schema::{schema, with};

#[test]
fn every_link_within_the_repository_leads_to_a_file_and_a_heading() {
    let pages = all();
    for page in &pages {
        let links = page.links();
        for link in links.iter().filter(|link| !link.starts_with("https://")) {
            let (file, anchor) = page.target(link);
            assert!(artifacts::root().join(&file).exists(), "{}: {link}", page.path.display());
            if let Some(anchor) = anchor
                && let Some(target) = pages.iter().find(|page| page.path == file)
            {
                let anchors = target.anchors();
                assert!(
                    anchors.iter().any(|given| given == anchor),
                    "{}: {link}: {anchors:?}",
                    page.path.display()
                );
            }
        }
    }
}

#[test]
fn the_summary_lists_every_page_once() {
    let pages = book();
    let (summary, others): (Vec<_>, Vec<_>) =
        pages.iter().partition(|page| page.path.ends_with("SUMMARY.md"));
    let [summary] = summary.as_slice() else { panic!("no summary") };
    let mut listed: Vec<_> = summary.links().iter().map(|link| summary.target(link).0).collect();
    listed.sort();
    assert_eq!(listed, others.iter().map(|page| page.path.clone()).collect::<Vec<_>>());
}

#[test]
fn the_place_of_the_images_is_named_once() {
    let naming = book().into_iter().flat_map(|page| {
        let text = std::fs::read_to_string(artifacts::root().join(&page.path)).unwrap();
        let lines = text.lines().filter(|line| line.contains("registry.example.com")).map(str::to_owned);
        lines.collect::<Vec<_>>()
    });
    // The release puts its own in the place of this one, on this page and in the values of the chart.
    assert_eq!(naming.collect::<Vec<_>>(), ["export IMAGES=registry.example.com/weir"]);
    let script = std::fs::read_to_string(artifacts::root().join("scripts/dist.sh")).unwrap();
    for file in ["book/install.html", "chart/values.yaml"] {
        assert!(script.contains(&format!("name_images \"$new/{file}\"")), "{file}");
    }
}

#[test]
fn every_picture_is_on_a_page_described_and_small() {
    let folder = Path::new("docs/src/images");
    let mut files: BTreeSet<_> = std::fs::read_dir(artifacts::root().join(folder))
        .unwrap()
        .map(|entry| folder.join(entry.unwrap().file_name()))
        .collect();
    assert!(files.len() > 1, "{files:?}");
    for page in all() {
        for picture in page.prose().flat_map(|line| line.split("![").skip(1)) {
            let (description, target) = picture.split_once("](").unwrap();
            let (file, _) = page.target(target.split(')').next().unwrap());
            assert!(description.len() > 40, "{}: {description:?}", page.path.display());
            files.remove(&file);
            let bytes = std::fs::read(artifacts::root().join(&file)).unwrap();
            assert!(bytes.len() < 150_000, "{}: {} bytes", file.display(), bytes.len());
            if file.extension().is_some_and(|extension| extension == "svg") {
                let text = String::from_utf8(bytes).unwrap();
                let is_readable =
                    ["<title ", "prefers-color-scheme: dark"].iter().all(|part| text.contains(part));
                assert!(is_readable, "{}", file.display());
            }
        }
    }
    assert!(files.is_empty(), "no page shows {files:?}");
}

#[test]
fn the_filter_accepts_the_configurations_that_pages_show_and_refuses_those_that_it_is_said_to_refuse() {
    let mut seen = BTreeSet::new();
    for page in all() {
        for block in page.blocks() {
            let info: Vec<_> = block.info.iter().map(String::as_str).collect();
            let shown = format!("{}:\n{}", page.path.display(), block.text);
            let judged = |configuration: &Value| Config::from_json(configuration.to_string().as_bytes());
            let json =
                || serde_json::from_str(&block.text).unwrap_or_else(|error| panic!("{error}: {shown}"));
            match info.as_slice() {
                ["json"] => assert_eq!(judged(&json()).err(), None, "{shown}"),
                ["json", "fields"] => assert_eq!(judged(&completed(&json())).err(), None, "{shown}"),
                ["json", "refused"] => assert!(judged(&json()).is_err(), "{shown}"),
                // What the filter or a service answers.
                ["json", "answer"] => drop(json()),
                ["text"] | ["text", "server"] => {}
                // Run where they can be: see `commands`.
                ["sh" | "console", ..] => {}
                _ => panic!("a block of an unknown kind: {info:?} in {shown}"),
            }
            seen.insert(info.join(","));
        }
    }
    for kind in ["json", "json,fields", "json,refused"] {
        assert!(seen.contains(kind), "no page has a block {kind}");
    }
}

/// The least configuration with these fields, and what they refer to.
fn completed(fields: &Value) -> Value {
    let mut given = fields.clone();
    let mut add = |field: &str, value: Value| {
        if given.get(field).is_none() {
            given[field] = value;
        }
    };
    add("classes", json!([{"name": "analytics"}]));
    if fields.get("plan_source").is_some() {
        add("key_sources", json!([{"metadata": ["filter_metadata", "jwt", "sub"]}]));
    }
    with(&given)
}

/// The texts of a folder's files, but for pages.
fn shipped(folder: impl AsRef<Path>) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(artifacts::root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        if path.is_dir() {
            texts.extend(shipped(path));
        } else if !is_page && let Ok(text) = std::fs::read_to_string(path) {
            texts.push(text);
        }
    }
    texts
}

/// The words of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'))
}

/// The words of the code and of what is shipped beside it.
fn known_words() -> BTreeSet<String> {
    let folders =
        ["filter/src", "backend/src", "backend/systemd", "host-sim", "demo/src", "envoy", "tests/src"];
    let texts: Vec<_> = folders.into_iter().flat_map(shipped).collect();
    texts.iter().flat_map(|text| words(text)).map(str::to_owned).collect()
}

#[test]
fn every_metric_and_response_code_detail_that_a_page_names_exists() {
    // As Prometheus shows it: without the tags.
    let shown = |name: &str| match name.rsplit_once(";.;") {
        Some((_, last)) => format!("weir_{last}"),
        None => name.replace('.', "_"),
    };
    let in_quotes = |text: &str| text.split('"').skip(1).step_by(2).map(shown).collect::<Vec<_>>();
    let mut known: BTreeSet<_> = shipped("filter/src").iter().flat_map(|text| in_quotes(text)).collect();
    known.insert("weir_requests_total".to_owned());
    // The rest is read back from a running backend and a running Envoy, by the suite `deployment`.
    let observed = shipped("envoy/prometheus").into_iter().chain(shipped("envoy/grafana"));
    known.extend(observed.flat_map(|text| {
        words(&text).filter(|word| word.starts_with("weir_backend_")).map(str::to_owned).collect::<Vec<_>>()
    }));
    let mut named = 0;
    for page in all() {
        let prose = page.prose().collect::<Vec<_>>().join("\n");
        for name in words(&prose).filter(|word| word.starts_with("weir_")) {
            assert!(known.contains(name), "{}: {name}", page.path.display());
            named += 1;
        }
    }
    assert!(named > 20, "{named}");
}

#[test]
fn every_field_and_value_of_the_configuration_that_a_page_names_exists() {
    let schema = schema();
    let mut objects = vec![&schema];
    objects.extend(schema["$defs"].as_object().unwrap().values());
    objects.extend(schema["$defs"]["Quota"]["anyOf"].as_array().unwrap());
    let fields =
        |name: &str| objects.iter().filter_map(|object| object["properties"].get(name)).collect::<Vec<_>>();
    let top: BTreeSet<_> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    let code = known_words();
    for page in all() {
        for text in page.inline_code() {
            let named = format!("{}: `{text}`", page.path.display());
            if let Some((name, value)) = text.split_once(": ")
                && let Some(name) = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'))
            {
                let known = fields(name);
                assert!(!known.is_empty(), "{named}");
                if let Ok(Value::String(value)) = serde_json::from_str(value) {
                    let lists = known.iter().map(|field| values(&schema, field)).collect::<Vec<_>>();
                    let is_open = lists.iter().any(Vec::is_empty);
                    assert!(
                        is_open || lists.iter().flatten().any(|known| *known == value),
                        "{named}: {lists:?}"
                    );
                }
            } else if let Some((first, rest)) = text.split_once('.')
                && top.contains(first.trim_end_matches("[]"))
                && !text.contains(' ')
                && text != EVENT
            {
                let last = rest.rsplit('.').next().unwrap_or(rest).trim_end_matches("[]");
                assert!(!fields(last).is_empty() || FOREIGN.contains(&text), "{named}");
            } else if is_alert(text) || is_snake_case(text) {
                assert!(code.contains(text) || FOREIGN.contains(&text), "{named}");
            }
        }
    }
}

fn is_alert(name: &str) -> bool {
    name.strip_prefix("Weir").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
}

fn is_snake_case(name: &str) -> bool {
    name.contains('_') && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// An event of the backend's webhooks, whose first word is a field of the configuration, too.
const EVENT: &str = "usage.threshold_reached";

/// Names of other products, which nothing in the repository has.
const FOREIGN: [&str; 18] = [
    "_method",
    "adaptive_concurrency",
    "admission_control",
    "auth_request",
    "body_format_override",
    "common_http_protocol_options",
    "early_header_mutation_extensions",
    "error_page",
    "istio_agent_wasm_remote_fetch_count",
    "large_client_header_buffers",
    "max_conns",
    "prefix_rewrite",
    "request_headers_to_add",
    "suppress_envoy_headers",
    "try_files",
    "underscores_in_headers",
    "usage.threshold_reached",
    "x_request_id",
];

/// The values that a field may have, where the schema lists them.
fn values<'s>(schema: &'s Value, field: &'s Value) -> Vec<&'s str> {
    let definition = field["$ref"].as_str().and_then(|name| schema.pointer(name.trim_start_matches('#')));
    let listed = definition.unwrap_or(field)["oneOf"].as_array();
    listed.into_iter().flatten().filter_map(|choice| choice["const"].as_str()).collect()
}

/// The lines of a page that a shell runs, with continued lines joined.
fn command_lines(page: &Page) -> Vec<String> {
    let mut lines = Vec::new();
    for block in page.blocks().iter().filter(|block| ["sh", "console"].contains(&block.info[0].as_str())) {
        for line in block.text.replace("\\\n", " ").lines() {
            let line = match block.info[0].as_str() {
                "console" => line.strip_prefix("$ "),
                _ => Some(line),
            };
            lines.extend(line.map(|line| line.split(" #").next().unwrap_or(line).to_owned()));
        }
    }
    lines.extend(page.inline_code().filter(|text| text.contains(' ')).map(str::to_owned));
    lines
}

#[test]
fn every_make_target_that_a_page_names_exists() {
    let makefile = std::fs::read_to_string(artifacts::root().join("Makefile")).unwrap();
    let targets: BTreeSet<_> = makefile
        .lines()
        .filter_map(|line| line.split_once(": ").or(line.split_once(":"))?.0.into())
        .collect();
    let mut named = 0;
    for page in all() {
        for line in command_lines(&page) {
            let mut words = line.split_whitespace();
            if words.next() == Some("make") {
                for target in words
                    .take_while(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'))
                {
                    assert!(targets.contains(target), "{}: make {target}", page.path.display());
                    named += 1;
                }
            }
        }
    }
    assert!(named > 10, "{named}");
}

#[test]
fn every_script_that_a_page_a_workflow_or_another_script_names_exists() {
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let root = artifacts::root();
    let mut texts = vec![text(&root.join("Makefile")), text(&root.join(".ci/run"))];
    for folder in ["scripts", ".github/workflows", "filter", "envoy"] {
        let files = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        texts.extend(files.filter(|file| file.is_file()).map(|file| text(&file)));
    }
    texts.extend(all().iter().map(|page| text(&root.join(&page.path))));
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_./-".contains(letter);
    let scripts: BTreeSet<_> = texts
        .iter()
        .flat_map(|text| text.split(|letter| !is_of_name(letter)))
        .filter(|word| word.ends_with(".sh") || word.ends_with(".py"))
        .filter(|word| ["scripts/", "filter/", "envoy/"].iter().any(|folder| word.starts_with(folder)))
        .collect();
    assert!(scripts.len() > 10, "{scripts:?}");
    for script in scripts {
        assert!(root.join(script).is_file(), "{script}");
    }
}

/// The help of a command of this workspace, and that of its subcommands.
fn help(command: &str) -> String {
    let run = |arguments: &[&str]| {
        let output =
            Command::new(artifacts::command(command)).args(arguments).arg("--help").output().unwrap();
        assert!(output.status.success(), "{command} {arguments:?} --help");
        String::from_utf8(output.stdout).unwrap()
    };
    let subcommands = |help: &str| {
        let listed =
            help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut whole = run(&[]);
    for subcommand in subcommands(&whole) {
        let inner = run(&[&subcommand]);
        for name in subcommands(&inner) {
            whole += &run(&[&subcommand, &name]);
        }
        whole += &inner;
    }
    whole
}

const COMMANDS: [&str; 6] = ["backend", "host-sim", "weir", "weir-bench", "weir-demo", "weir-ledger"];

#[test]
fn every_command_of_a_release_prints_its_own_name_with_its_version() {
    for command in COMMANDS.into_iter().filter(|command| *command != "weir-bench") {
        let output = Command::new(artifacts::command(command)).arg("--version").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed, format!("{command} {}\n", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn every_option_of_our_commands_that_a_page_names_exists() {
    let helps = COMMANDS.map(|command| (command, help(command)));
    let has = |help: &str, option: &str| words(help).any(|word| word == option);
    let shipped = shipped("envoy");
    let mut named = 0;
    for page in all() {
        for line in command_lines(&page) {
            let ours = helps.iter().find(|(command, _)| {
                let package = format!("-p {command}-cli --");
                let binary = format!("--bin {command} --");
                line.starts_with(&format!("{command} ")) || line.contains(&package) || line.contains(&binary)
            });
            let Some((_, help)) = ours else { continue };
            let arguments = line.split_once(" -- ").map_or(line.as_str(), |(_, arguments)| arguments);
            for option in arguments.split_whitespace().filter(|word| word.starts_with("--")) {
                let option = option.split('=').next().unwrap_or(option);
                assert!(has(help, option), "{}: {option} in {line}", page.path.display());
                named += 1;
            }
        }
        for text in page.inline_code().filter(|text| text.starts_with("--")) {
            let option = text.split([' ', '=']).next().unwrap_or(text);
            let is_known = helps.iter().any(|(_, help)| has(help, option))
                || shipped.iter().any(|text| has(text, option));
            assert!(is_known, "{}: {option}", page.path.display());
            named += 1;
        }
    }
    assert!(named > 10, "{named}");
}
