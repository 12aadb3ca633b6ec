//! What the configuration says of a directory.

use super::*;

#[test]
fn a_directory_has_the_documented_defaults() {
    let config = with(r#""directory": {"cluster": "backend", "path": "/internal/keys"}"#).unwrap();
    let directory = config.settings.directory.unwrap();
    let Some(StrangerPolicy::Limit(quotas)) = &config.not_ready else { panic!("{directory:?}") };
    let [quota] = quotas.quotas() else { panic!("{quotas:?}") };
    assert_eq!((quota.limit.get(), quota.window, quota.name.as_str()), (600, Window::MINUTE, "address"));
    assert_eq!(
        (&*directory.cluster, &*directory.path, directory.authority()),
        ("backend", "/internal/keys", "backend")
    );
    assert_eq!(directory.timeout_milliseconds(), 5_000);
    assert_eq!((directory.interval.0, directory.bearer, directory.max_stale.0), (10, None, 0));
}

fn directory(cluster: &str, more: &str) -> Result<DirectorySettings, String> {
    let field = format!(r#""directory": {{"cluster": "{cluster}", "path": "/keys" {more}}}"#);
    with(&field).map(|config| config.settings.directory.unwrap())
}

#[test]
fn polls_name_the_host_in_the_name_of_the_cluster_or_the_given_one() {
    let rows = [
        ("outbound|8082||backend.links.svc.cluster.local", "backend.links.svc.cluster.local"),
        ("backend/links", "weir.internal"),
        ("backend", "backend"),
        ("outbound|8082||", "weir.internal"),
        ("a|127.0.0.1:8082", "127.0.0.1:8082"),
        ("[::1]:80", "[::1]:80"),
        ("[::g]", "weir.internal"),
        ("backend:http", "weir.internal"),
        ("backend:+80", "weir.internal"),
        ("backend:65536", "weir.internal"),
        ("back end", "weir.internal"),
    ];
    for (cluster, expected) in rows {
        assert_eq!(directory(cluster, "").unwrap().authority(), expected, "{cluster}");
    }
    for authority in ["directory", "keys.internal:8082", "[2001:db8::1]", "a_b-c.d"] {
        let given = format!(r#", "authority": "{authority}""#);
        assert_eq!(directory("a/b", &given).unwrap().authority(), authority);
    }
    for authority in ["", ":80", "a/b", "a:b", "a b", "http://a", "::1", "[::1", "a:"] {
        let given = format!(r#", "authority": "{authority}""#);
        assert!(directory("a/b", &given).is_err(), "{authority}");
    }
}

#[test]
fn a_directory_that_is_not_ready_has_a_policy_in_words_or_with_quotas() {
    let policy = |json: &str| {
        let field = format!(r#""directory": {{"cluster": "c", "path": "/keys", "not_ready": {json}}}"#);
        with(&field).unwrap().not_ready.unwrap()
    };
    let limit = |policy| match policy {
        StrangerPolicy::Limit(quotas) => quotas.quotas().iter().map(|quota| quota.limit.get()).collect(),
        StrangerPolicy::Pass | StrangerPolicy::Refuse => Vec::new(),
    };
    assert_eq!(policy(r#""pass""#), StrangerPolicy::Pass);
    assert_eq!(policy(r#"{"action": "pass"}"#), StrangerPolicy::Pass);
    assert_eq!(policy(r#""unavailable""#), StrangerPolicy::Refuse);
    assert_eq!(policy(r#"{"action": "unavailable"}"#), StrangerPolicy::Refuse);
    assert_eq!(limit(policy(r#""limit""#)), [600]);
    assert_eq!(limit(policy(r#"{"action": "limit"}"#)), [600]);
    assert_eq!(limit(policy(r#"{"action": "limit", "quotas": ["5/second", "9/day"]}"#)), [5, 9]);
}

#[test]
fn a_token_comes_from_the_environment() {
    let config = || {
        with(r#""directory": {"cluster": "c", "path": "/k", "bearer": {"env": "WEIR_DIRECTORY_TOKEN"}}"#)
            .unwrap()
    };
    assert!(!format!("{:?}", config()).contains("WEIR_DIRECTORY_TOKEN"));
    let token =
        config().with_environment(|name| (name == "WEIR_DIRECTORY_TOKEN").then(|| "s3cret".to_owned()));
    let bearer = token.unwrap().settings.directory.unwrap().bearer.unwrap();
    assert_eq!((bearer.expose(), format!("{bearer:?}").as_str()), ("s3cret", "Secret"));
    for value in [None, Some(String::new())] {
        let refused = config().with_environment(|_| value.clone()).unwrap_err().to_string();
        let expected = r#"directory.bearer.env: "WEIR_DIRECTORY_TOKEN": not set, or this host passes none"#;
        assert_eq!(refused, expected);
    }
    let given = with(r#""directory": {"cluster": "c", "path": "/k", "bearer": "t"}"#).unwrap();
    let given = given.with_environment(|_| panic!("no variable is read")).unwrap();
    assert_eq!(given.settings.directory.unwrap().bearer, Some(Secret::Given("t".into())));
}
