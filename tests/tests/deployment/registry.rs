//! `make push` to registries as they are deployed: with a password, with TLS and with tokens.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::client::Client;
use tests::process::Process;
use tests::server::{Response, Server};

use crate::images::{Layout, script};
use crate::tools::{run, succeed};

const PASSWORD: &str = "a password of the tests";
/// The line of `htpasswd -B` for alice with that password.
const HTPASSWD: &str = "alice:$2b$04$Pf2CR9ZPoGvWUPewp7K9MeZfXj8FhAIP5NYgzUCgIfMbMbzVZ6Lwa";
/// `alice:a password of the tests`, as Basic authentication encodes it.
const RIGHT: &str = "YWxpY2U6YSBwYXNzd29yZCBvZiB0aGUgdGVzdHM=";
/// `alice:another`
const WRONG: &str = "YWxpY2U6YW5vdGhlcg==";

/// Debian's registry, on a free port of loopback.
pub(crate) struct Registry {
    name: String,
    folder: TempDir,
    _process: Process,
}

impl Registry {
    /// One that anybody may use, without TLS.
    pub(crate) fn start() -> Self {
        Self::with(|_| json!({}))
    }

    /// One with a self-signed certificate and a password.
    fn protected() -> Self {
        Self::with(|folder| {
            let [key, certificate] = ["key.pem", "cert.pem"].map(|name| folder.join(name));
            let mut openssl = Command::new("openssl");
            openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
            openssl.args(["-days", "2", "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1"]);
            openssl.args(["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]);
            succeed(openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate));
            let passwords = folder.join("htpasswd");
            std::fs::write(&passwords, HTPASSWD).unwrap();
            json!({
                "http": {"tls": {"certificate": certificate, "key": key}},
                "auth": {"htpasswd": {"realm": "registry", "path": passwords}},
            })
        })
    }

    /// One that asks for a token, whatever it says.
    fn asking_for_tokens_of(server: &Server) -> Self {
        let realm = format!("http://{}/token", server.address());
        Self::with(|_| json!({"auth": {"silly": {"realm": realm, "service": "registry"}}}))
    }

    fn with(settings: impl FnOnce(&Path) -> Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut configuration = settings(folder.path());
        configuration["version"] = json!(0.1);
        configuration["storage"] = json!({"filesystem": {"rootdirectory": folder.path().join("data")}});
        configuration["http"]["addr"] = json!("127.0.0.1:0");
        let file = folder.path().join("config.yml");
        // JSON is YAML.
        std::fs::write(&file, configuration.to_string()).unwrap();
        let mut command = Command::new("docker-registry");
        let process = Process::start("docker-registry", command.arg("serve").arg(file)).unwrap();
        let name = process.wait_for(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            rest.split(['"', ',']).next().map(str::to_owned)
        });
        Self { name: name.unwrap(), folder, _process: process }
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.name.parse().unwrap()).unwrap()
    }

    pub(crate) fn reference(&self, image: &str) -> String {
        format!("{}/{image}", self.name)
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }
}

/// A command as it runs where `docker login` has written `configuration`, and nothing else is set.
fn logged_in<'a>(command: &'a mut Command, folder: &Path, configuration: &Value) -> &'a mut Command {
    std::fs::write(folder.join("config.json"), configuration.to_string()).unwrap();
    command.env("DOCKER_CONFIG", folder);
    for variable in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"] {
        command.env_remove(variable);
    }
    command
}

fn login(host: &str, credentials: &str) -> Value {
    json!({"auths": {host: {"auth": credentials}}})
}

/// The search path with a credential helper called "tests", which is a shell script.
fn with_helper(folder: &Path, text: &str) -> String {
    let helper = folder.join("docker-credential-tests");
    std::fs::write(&helper, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&helper, Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// A message of one line, and no password in it.
#[track_caller]
fn assert_refused((succeeded, said): (bool, String), expected: &str) {
    assert!(!succeeded && said.lines().count() == 1 && said.contains(expected), "{expected}: {said}");
    for secret in [PASSWORD, RIGHT, "another", WRONG] {
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn a_push_takes_the_credentials_that_docker_login_keeps_or_its_helper() {
    let folder = tempfile::tempdir().unwrap();
    let image = Layout::of_filter(folder.path().join("image"));
    let registry = Registry::protected();
    let answer = json!({"Username": "alice", "Secret": PASSWORD});
    let text = format!("read -r host; [ \"$host\" = {} ] && echo '{answer}'", registry.name);
    let path = with_helper(folder.path(), &text);
    for (tag, configuration) in [
        ("auths", login(&registry.name, RIGHT)),
        ("addresses", login(&format!("https://{}/v1/", registry.name), RIGHT)),
        ("helper", json!({"auths": {&registry.name: {}}, "credHelpers": {&registry.name: "tests"}})),
        ("store", json!({"credsStore": "tests"})),
    ] {
        let reference = registry.reference(&format!("weir/filter:{tag}"));
        let mut push = script(&["push"]);
        push.arg(&image.folder).arg(&reference);
        let pushed = succeed(
            logged_in(&mut push, folder.path(), &configuration)
                .env("SSL_CERT_FILE", registry.certificate())
                .env("PATH", &path),
        );
        assert_eq!(pushed, format!("pushed {reference}@{}\n", image.digest()));
        let mut pull = script(&["pull", &reference]);
        pull.arg(folder.path().join(tag));
        let pulled = succeed(
            logged_in(&mut pull, folder.path(), &configuration)
                .env("REQUESTS_CA_BUNDLE", registry.certificate())
                .env("PATH", &path),
        );
        assert_eq!(pulled, format!("pulled {}\n", image.digest()));
    }
}

#[test]
fn a_push_that_fails_says_why_in_one_line_without_the_password() {
    let folder = tempfile::tempdir().unwrap();
    let image = Layout::of_filter(folder.path().join("image"));
    let registry = Registry::protected();
    let certificate = registry.certificate();
    let host = &registry.name;
    let right = login(host, RIGHT);
    let nowhere = Path::new("/nowhere/cert.pem");
    let path = with_helper(folder.path(), "echo locked; exit 1");
    for (configuration, authorities, expected) in [
        (&right, None, format!("the certificate of {host} is not trusted: ")),
        (&right, Some(nowhere), "SSL_CERT_FILE names /nowhere/cert.pem, which does not exist".into()),
        (
            &login("registry.example.com", RIGHT),
            Some(&*certificate),
            format!("{host} asks for a password and "),
        ),
        (&login(host, WRONG), Some(&certificate), format!("{host} does not accept the password that ")),
        (
            &json!({"credsStore": "of-nobody"}),
            Some(&certificate),
            "names docker-credential-of-nobody, which is not installed".into(),
        ),
        (&json!({"credsStore": "tests"}), Some(&certificate), "docker-credential-tests fails: locked".into()),
        (
            &json!({"auths": [RIGHT]}),
            Some(&certificate),
            "config.json is not a configuration of docker".into(),
        ),
    ] {
        let mut push = script(&["push"]);
        push.arg(&image.folder).arg(registry.reference("weir/filter:0.1.0"));
        logged_in(&mut push, folder.path(), configuration).env("PATH", &path);
        if let Some(authorities) = authorities {
            push.env("SSL_CERT_FILE", authorities);
        }
        assert_refused(run(&mut push), &expected);
    }
    // Nothing listens on port 1.
    assert_refused(run(script(&["push"]).arg(&image.folder).arg("127.0.0.1:1/weir/filter:0.1.0")), "refused");
}

#[test]
fn only_loopback_is_reached_without_tls_unless_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let image = Layout::of_filter(folder.path().join("image"));
    let registry = Registry::start();
    // The same registry, by an address that does not say so.
    let reference = registry.reference("weir/filter:0.1.0").replace("127.0.0.1", "0.0.0.0");
    let push = || {
        let mut push = script(&["push"]);
        push.arg(&image.folder).arg(&reference);
        // Nobody asks for credentials.
        logged_in(&mut push, folder.path(), &json!({"credsStore": "of-nobody"}));
        push
    };
    assert_refused(run(&mut push()), "does not speak TLS; PLAIN_HTTP=1 pushes without it");
    let pushed = succeed(push().arg("--plain-http"));
    assert_eq!(pushed, format!("pushed {reference}@{}\n", image.digest()));
}

/// Gives alice a token with which she may push to `weir/filter`.
fn token(request: &http::Request<bytes::Bytes>) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let known =
        request.headers().get("authorization").is_some_and(|given| *given == format!("Basic {RIGHT}"));
    let scope = "scope=repository%3Aweir%2Ffilter%3Apull%2Cpush";
    if known && query.contains("service=registry") && query.contains(scope) {
        Response::new(json!({"token": "a token"}).to_string().into())
    } else {
        status(StatusCode::UNAUTHORIZED, "")
    }
}

fn status(status: StatusCode, body: &str) -> Response {
    let mut response = Response::new(body.to_owned().into());
    *response.status_mut() = status;
    response
}

#[test]
fn a_push_asks_for_a_token_with_the_right_to_push() {
    let folder = tempfile::tempdir().unwrap();
    let image = Layout::of_filter(folder.path().join("image"));
    let server = Server::start(|request| token(&request)).unwrap();
    let registry = Registry::asking_for_tokens_of(&server);
    let reference = registry.reference("weir/filter:0.1.0");
    let push = |configuration: Value| {
        let mut push = script(&["push"]);
        run(logged_in(push.arg(&image.folder).arg(&reference), folder.path(), &configuration))
    };
    let (pushed, said) = push(login(&registry.name, RIGHT));
    assert!(pushed && said == format!("pushed {reference}@{}\n", image.digest()), "{said}");
    assert_refused(push(login(&registry.name, WRONG)), "does not accept the password that");
    assert_refused(push(json!({})), "asks for a password and");
}

#[test]
fn a_user_who_may_not_push_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let image = Layout::of_filter(folder.path().join("image"));
    // What registries of hosting services do; Debian's knows no rights.
    let server = Server::start(|request| {
        if request.uri().path() == "/token" {
            return token(&request);
        }
        if request.headers().get("authorization").is_none_or(|given| given != "Bearer a token") {
            let host = request.headers()["host"].to_str().unwrap();
            let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"registry\"");
            let mut response = status(StatusCode::UNAUTHORIZED, "");
            response.headers_mut().insert("www-authenticate", challenge.parse().unwrap());
            return response;
        }
        match *request.method() {
            Method::GET => status(StatusCode::OK, "{}"),
            Method::HEAD => status(StatusCode::NOT_FOUND, ""),
            _ => status(
                StatusCode::FORBIDDEN,
                r#"{"errors": [{"code": "DENIED", "message": "requested access to the resource is denied"}]}"#,
            ),
        }
    });
    let host = server.as_ref().unwrap().address().to_string();
    let mut push = script(&["push"]);
    push.arg(&image.folder).arg(format!("{host}/weir/filter:0.1.0"));
    assert_refused(
        run(logged_in(&mut push, folder.path(), &login(&host, RIGHT))),
        &format!("alice may not push to {host}/weir/filter: requested access to the resource is denied"),
    );
}
