use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// The rules of the contract: redirects are exempt, analytics are a class, and the rest is another.
fn rule(path: &str) -> &'static str {
    match path {
        "/r" => "exempt",
        "/analytics" | "/events" => "analytics",
        path if path.starts_with("/r/") => "exempt",
        _ => "standard",
    }
}

fn select(upstream: UpstreamPaths, path: &str) -> Result<&'static str, AmbiguousPath> {
    Readings::new(upstream).select(path.as_bytes(), |reading| rule(std::str::from_utf8(reading).unwrap()))
}

const ANY: UpstreamPaths =
    UpstreamPaths { merge_slashes: None, matrix_parameters: None, encoded_slash: None, ignore_case: false };

#[test]
fn a_path_selects_a_rule_only_if_every_upstream_reads_it_so() {
    let ambiguous = Err(AmbiguousPath);
    let rows = [
        // What no upstream tells apart.
        ("/analytics", Ok("analytics")),
        ("/analytics/", Ok("analytics")),
        ("/analytics///", Ok("analytics")),
        ("/analytics?x=/r", Ok("analytics")),
        ("/analytics/?x", Ok("analytics")),
        ("/analytics#x", Ok("analytics")),
        ("/%61nalytics", Ok("analytics")),
        ("/%61%6E%61lytics//", Ok("analytics")),
        ("analytics", Ok("analytics")),
        // Other resources.
        ("/Analytics", Ok("standard")),
        ("/analytics/x", Ok("standard")),
        ("/%2561nalytics", Ok("standard")),
        ("/analytics%", Ok("standard")),
        ("/analytics%6", Ok("standard")),
        ("/analytics%zz", Ok("standard")),
        ("/analyti%63%", Ok("standard")),
        ("/.analytics", Ok("standard")),
        ("/...", Ok("standard")),
        ("/", Ok("standard")),
        ("//", Ok("standard")),
        ("", Ok("standard")),
        ("*", Ok("standard")),
        // What upstreams tell apart, where it makes no difference.
        ("/links//x/./y;a=b%2Fc", Ok("standard")),
        ("/links/ext_a%2Fb%20c", Ok("standard")),
        ("/links/ext_https:%2F%2Fexample.com%2F%3Fa;b", Ok("standard")),
        ("/r/a//b;c/./d%5Ce", Ok("exempt")),
        ("/r;a/b/../r", ambiguous),
        ("/links/../links", Ok("standard")),
        // Where it makes one.
        ("//analytics", ambiguous),
        ("/x/../analytics", ambiguous),
        ("/x/%2e%2E/analytics", ambiguous),
        ("/./analytics", ambiguous),
        ("/analytics/.", ambiguous),
        ("/../../analytics", ambiguous),
        ("/analytics;a=b", ambiguous),
        ("/analytics/;a=b", ambiguous),
        ("/;a/analytics", ambiguous),
        ("/analytics%3Ba", ambiguous),
        ("/analytics%2F", ambiguous),
        ("/analytics%2f", ambiguous),
        ("/analytics%5C", ambiguous),
        ("/analytics\\", ambiguous),
        ("\\analytics", ambiguous),
        ("/r/../links", ambiguous),
        ("/r/..%2Flinks", ambiguous),
        ("/r/%2e%2e%5Clinks", ambiguous),
        ("/r/..;/links", ambiguous),
        ("/r/..%3B/links", ambiguous),
        ("/links//../r", ambiguous),
        // As observed in Envoy.
        ("/links/ext_a/..;/..;/r", ambiguous),
        ("/links/ext_a/%2E.;/%2E.;/r", ambiguous),
        ("/links/a/..;x=1/../r/b", ambiguous),
        ("/links/%2e%2e;/r", ambiguous),
        ("/links/a;/../../r", ambiguous),
        ("/links/.;/../r/x", ambiguous),
        // One upstream takes only the dots for a dot segment, and serves /r;a.
        ("/r/..;/r;a", ambiguous),
        // A broken escape must not become another when it is decoded.
        ("/r/..%2F..%2Flinks%2F%2%65%2%65%2Fr", ambiguous),
    ];
    for (path, expected) in rows {
        assert_eq!(select(ANY, path), expected, "{path}");
    }
}

#[test]
fn a_declaration_removes_the_other_readings() {
    let merging = UpstreamPaths { merge_slashes: Some(true), ..ANY };
    let not_merging = UpstreamPaths { merge_slashes: Some(false), ..ANY };
    let dropping = UpstreamPaths { matrix_parameters: Some(MatrixParameters::Drop), ..ANY };
    let keeping = UpstreamPaths { matrix_parameters: Some(MatrixParameters::Keep), ..ANY };
    let decoding = UpstreamPaths { encoded_slash: Some(EncodedSlash::Decode), ..ANY };
    let not_decoding = UpstreamPaths { encoded_slash: Some(EncodedSlash::Keep), ..ANY };
    let ignoring = UpstreamPaths { ignore_case: true, ..ANY };
    let ambiguous = Err(AmbiguousPath);
    let rows = [
        (merging, "//analytics", Ok("analytics")),
        (merging, "/links//../r", ambiguous), // merged before or after dot segments
        (merging, "/analytics;a", ambiguous),
        (not_merging, "//analytics", Ok("standard")),
        (not_merging, "/links//../r", Ok("standard")),
        (dropping, "/analytics;a=b", Ok("analytics")),
        (dropping, "/analytics/;a=b", Ok("analytics")),
        (dropping, "/analytics%3Ba=b", ambiguous), // decoded before or after
        (dropping, "/links/a/..;/..;/r", ambiguous), // dropped before or after
        (keeping, "/analytics;a=b", Ok("standard")),
        (keeping, "/links/a/..;/..;/r", Ok("standard")),
        (decoding, "/analytics%2F", Ok("analytics")),
        (decoding, "/links%2fr", Ok("standard")),
        (decoding, "/links%2F..%2Fr", ambiguous), // dot segments removed or not
        (not_decoding, "/analytics%2F", Ok("standard")),
        (not_decoding, "/r/..%2Flinks", Ok("exempt")),
        (not_decoding, "/analytics%5C", Ok("standard")),
        (not_decoding, "/analytics\\", ambiguous),
        (ignoring, "/Analytics", Ok("analytics")),
        (ignoring, "/%41NALYTICS", Ok("analytics")),
        (ignoring, "/R/x", Ok("exempt")),
    ];
    for (upstream, path, expected) in rows {
        assert_eq!(select(upstream, path), expected, "{path} with {upstream:?}");
    }
}

#[test]
fn an_ordinary_path_has_one_reading() {
    for path in ["/links", "/links/ext_a%20b", "/links/%C3%A9/", "/.well-known/x", "/a.b/..c?d=%2F//;"] {
        let readings = Readings::new(ANY).select(path.as_bytes(), <[u8]>::to_vec);
        assert!(readings.is_ok(), "{path}");
    }
}

#[test]
fn work_on_a_path_is_bounded() {
    const LONGEST: usize = 60 * 1024;
    let long = |part: &str| format!("/links/{}", part.repeat(LONGEST / part.len()));
    let rows = [
        ("x", Ok("standard")),
        ("%61", Ok("standard")),
        ("%C3%A9", Ok("standard")),
        ("x//", Ok("standard")),
        ("x;", Ok("standard")),
        ("x%2F", Ok("standard")),
        ("x%2F;\\//a/../", Err(AmbiguousPath)),
        ("%2F%3B..//;", Err(AmbiguousPath)),
    ];
    for (part, expected) in rows {
        assert_eq!(select(ANY, &long(part)), expected, "{part}");
    }
    // All oddities at once: on 37 bytes the readings reach their bound, on 60 KiB the work does.
    let odd = "/a//..;%2F..\\b;/.%3B/%5C../c%2F%2F..;";
    for (times, reached) in [(1, true), (1600, false)] {
        let counted = std::cell::Cell::new(0);
        let selected =
            Readings::new(ANY).select(odd.repeat(times).as_bytes(), |_| counted.set(counted.get() + 1));
        assert_eq!((selected, counted.get() == MAX_READINGS), (Err(AmbiguousPath), reached), "{times} times");
    }
}

#[test]
fn a_rules_path_is_written_as_all_readings_of_it_are() {
    let rows = [
        (ANY, "/analytics", Ok(())),
        (ANY, "/caf\u{e9} x", Ok(())),
        (ANY, "/v1/links:count", Ok(())),
        (ANY, "/", Ok(())),
        (ANY, "/analytics/", Err("/analytics")),
        (ANY, "analytics", Err("/analytics")),
        (ANY, "/%61nalytics", Err("/analytics")),
        (ANY, "/caf%C3%A9%20x", Err("/caf\u{e9} x")),
        (ANY, "/a//b/./c/../d", Err("/a/b/d")),
        (ANY, "/a;b/c", Err("/a/c")),
        (ANY, "/a%2Fb", Err("/a/b")),
        (ANY, "/a\\b", Err("/a/b")),
        (ANY, "/x?y", Err("/x")),
        (UpstreamPaths { merge_slashes: Some(false), ..ANY }, "/a//b", Ok(())),
        (UpstreamPaths { merge_slashes: Some(true), ..ANY }, "/a//b", Err("/a/b")),
        (UpstreamPaths { matrix_parameters: Some(MatrixParameters::Keep), ..ANY }, "/a;b", Ok(())),
        (UpstreamPaths { encoded_slash: Some(EncodedSlash::Keep), ..ANY }, "/a%2Fb", Ok(())),
        (UpstreamPaths { encoded_slash: Some(EncodedSlash::Keep), ..ANY }, "/a%2fb", Err("/a%2Fb")),
        (UpstreamPaths { ignore_case: true, ..ANY }, "/Analytics", Err("/analytics")),
    ];
    for (upstream, path, expected) in rows {
        let checked = Readings::new(upstream).check(path);
        assert_eq!(checked, expected.map_err(str::to_owned), "{path} with {upstream:?}");
    }
}

/// Upstreams, each as a chain of small functions on text. They share nothing with the code that is tested.
mod upstream {
    pub(super) type Does = fn(&str) -> String;

    fn hex(text: &str) -> Option<(char, &str)> {
        let code = text.get(1..3).filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        Some((char::from(u8::from_str_radix(code, 16).ok()?), &text[3..]))
    }

    /// Decodes what `wanted` says, from left to right. The texts of these tests are ASCII.
    fn decode(path: &str, wanted: impl Fn(char) -> bool) -> String {
        let Some(start) = path.find('%') else { return path.to_owned() };
        let (before, from) = path.split_at(start);
        let (decoded, rest) = match hex(from) {
            Some((byte, rest)) if wanted(byte) => (byte.to_string(), rest),
            Some((_, rest)) => (from[..3].to_owned(), rest),
            None => ("%".to_owned(), &from[1..]),
        };
        format!("{before}{decoded}{}", decode(rest, wanted))
    }

    pub(super) fn unreserved(path: &str) -> String {
        decode(path, |byte| byte.is_ascii_alphanumeric() || "-._~ ".contains(byte))
    }

    pub(super) fn slashes_decoded(path: &str) -> String {
        path.replace("%2F", "/").replace("%2f", "/").replace("%5C", "\\").replace("%5c", "\\")
    }

    pub(super) fn others_decoded(path: &str) -> String {
        decode(path, |byte| byte != '/' && byte != '\\')
    }

    pub(super) fn all_decoded(path: &str) -> String {
        decode(path, |_| true)
    }

    pub(super) fn backslashes(path: &str) -> String {
        path.replace('\\', "/")
    }

    pub(super) fn merged(path: &str) -> String {
        let merged = path.replace("//", "/");
        if merged == path { merged } else { self::merged(&merged) }
    }

    pub(super) fn parameters_dropped(path: &str) -> String {
        let segments: Vec<_> = path.split('/').map(|segment| segment.split(';').next().unwrap()).collect();
        segments.join("/")
    }

    /// RFC 3986, section 5.2.4, rule by rule.
    pub(super) fn dots_removed(path: &str) -> String {
        let (mut input, mut output) = (path.to_owned(), String::new());
        while !input.is_empty() {
            if input.starts_with("/./") {
                input.drain(..2);
            } else if input == "/." {
                input = "/".to_owned();
            } else if input.starts_with("/../") || input == "/.." {
                input = if input == "/.." { "/".to_owned() } else { input[3..].to_owned() };
                output.truncate(output.rfind('/').unwrap_or(0));
            } else {
                let end = input[1..].find('/').map_or(input.len(), |end| end + 1);
                output.extend(input.drain(..end));
            }
        }
        output
    }

    /// Envoy 1.40.
    pub(super) fn dots_with_parameters_removed(path: &str) -> String {
        let segments = path.split('/').map(|segment| match segment.split_once(';') {
            Some((dots @ ("." | ".."), _)) => dots,
            _ => segment,
        });
        dots_removed(&segments.collect::<Vec<_>>().join("/"))
    }

    pub(super) fn trimmed(path: &str) -> String {
        let trimmed = path.trim_end_matches('/');
        if trimmed.is_empty() { "/".to_owned() } else { trimmed.to_owned() }
    }

    /// What servers and proxies do, by their documentation.
    pub(super) const CHAINS: [(&str, &[Does]); 13] = [
        ("serves the path as it is", &[]),
        ("a router that decodes late", &[others_decoded]),
        ("WSGI", &[all_decoded]),
        ("RFC 3986", &[dots_removed]),
        ("Envoy", &[slashes_decoded, backslashes, dots_removed, merged]),
        ("Envoy 1.40", &[backslashes, dots_with_parameters_removed, merged]),
        ("nginx", &[all_decoded, merged, dots_removed]),
        ("Go's ServeMux", &[all_decoded, dots_removed, merged]),
        ("WHATWG URL", &[backslashes, dots_removed]),
        ("Tomcat", &[parameters_dropped, others_decoded, merged, dots_removed]),
        ("Tomcat on Windows", &[parameters_dropped, all_decoded, backslashes, merged, dots_removed]),
        ("Jetty", &[all_decoded, parameters_dropped, dots_removed]),
        (
            "Envoy, then Tomcat",
            &[dots_removed, merged, parameters_dropped, all_decoded, merged, dots_removed],
        ),
    ];
}

/// Every operation in the order of the documentation, and which declaration it is of.
fn operations(declared: UpstreamPaths) -> Vec<(upstream::Does, Option<bool>)> {
    use upstream::{
        backslashes, dots_removed, dots_with_parameters_removed, merged, others_decoded, parameters_dropped,
        slashes_decoded,
    };
    let merge = declared.merge_slashes;
    let parameters = declared.matrix_parameters.map(|does| does == MatrixParameters::Drop);
    let slashes = declared.encoded_slash.map(|does| does == EncodedSlash::Decode);
    vec![
        (slashes_decoded, slashes.filter(|does| !does)),
        (backslashes, None),
        (parameters_dropped, parameters.filter(|does| !does)),
        (merged, merge.filter(|does| !does)),
        (dots_with_parameters_removed, parameters.filter(|does| !does)),
        (dots_removed, None),
        (merged, merge.filter(|does| !does)),
        (parameters_dropped, parameters.filter(|does| !does)),
        (slashes_decoded, slashes),
        (others_decoded, None),
        (backslashes, None),
        (parameters_dropped, parameters.filter(|does| !does)),
        (merged, merge.filter(|does| !does)),
        (dots_with_parameters_removed, parameters.filter(|does| !does)),
        (dots_removed, None),
        (parameters_dropped, parameters),
        (dots_removed, None),
        (merged, merge),
    ]
}

/// What every upstream that agrees with the declarations takes the path for.
fn every_reading(declared: UpstreamPaths, path: &str) -> BTreeSet<String> {
    let start = upstream::unreserved(path);
    let mut readings = BTreeSet::from([if declared.ignore_case { start.to_lowercase() } else { start }]);
    for (operation, does) in operations(declared) {
        let after: BTreeSet<_> = readings.iter().map(|path| operation(path)).collect();
        match does {
            Some(true) => readings = after,
            Some(false) => {}
            None => readings.extend(after),
        }
    }
    readings.iter().map(|path| upstream::trimmed(path)).collect()
}

fn a_path() -> impl Strategy<Value = String> {
    let parts = [
        "/",
        "/",
        "/",
        "/",
        "//",
        "..",
        "..",
        "..;",
        ".",
        ";",
        ";a=b",
        "%2e",
        "%2E",
        "%2F",
        "%2f",
        "%5C",
        "\\",
        "%3B",
        "%25",
        "%20",
        "%61nalytics",
        "analytics",
        "events",
        "r",
        "r",
        "links",
        "x",
        "R",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..12)
        .prop_map(|parts| format!("/{}", parts.concat()))
}

fn declarations() -> impl Strategy<Value = UpstreamPaths> {
    let merge = prop::option::weighted(0.3, any::<bool>());
    let parameters = prop::sample::select(vec![MatrixParameters::Drop, MatrixParameters::Keep]);
    let slash = prop::sample::select(vec![EncodedSlash::Decode, EncodedSlash::Keep]);
    let ignore_case = prop::bool::weighted(0.2);
    (merge, prop::option::weighted(0.3, parameters), prop::option::weighted(0.3, slash), ignore_case)
        .prop_map(|(merge_slashes, matrix_parameters, encoded_slash, ignore_case)| UpstreamPaths {
            merge_slashes,
            matrix_parameters,
            encoded_slash,
            ignore_case,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_rule_is_selected_if_and_only_if_all_readings_select_it(path in a_path(), declared in declarations()) {
        let readings = every_reading(declared, &path);
        prop_assume!(every_reading(ANY, &path).len() <= MAX_READINGS);
        let rules: BTreeSet<_> = readings.iter().map(|reading| rule(reading)).collect();
        let expected = if rules.len() == 1 { Ok(*rules.first().unwrap()) } else { Err(AmbiguousPath) };
        prop_assert_eq!(select(declared, &path), expected, "{} is read as {:?}", path, readings);
    }

    #[test]
    fn an_upstream_never_serves_another_rule_than_the_one_selected(path in a_path()) {
        for (name, chain) in upstream::CHAINS {
            let served = chain.iter().fold(upstream::unreserved(&path), |path, does| does(&path));
            let served = rule(&upstream::trimmed(&served));
            if let Ok(selected) = select(ANY, &path) {
                prop_assert_eq!(served, selected, "{} by {}", path, name);
            }
        }
    }

    #[test]
    fn trailing_slashes_and_needless_escapes_change_nothing(
        path in a_path(), slashes in 0..4_usize, escaped in prop::collection::vec(any::<bool>(), 60),
    ) {
        let mut escaped = escaped.into_iter();
        let mut of_escape = 0;
        let respelled: String = path.chars().map(|character| {
            let is_free = of_escape == 0 && (character.is_ascii_alphanumeric() || character == '.');
            of_escape = if character == '%' { 2_usize } else { of_escape.saturating_sub(1) };
            if is_free && escaped.next() == Some(true) { format!("%{:02x}", u32::from(character)) } else { character.to_string() }
        }).collect();
        let respelled = format!("{respelled}{}", "/".repeat(slashes));
        prop_assert_eq!(select(ANY, &respelled), select(ANY, &path), "{} and {}", respelled, path);
    }

    #[test]
    fn arbitrary_bytes_are_decided(path in prop::collection::vec(any::<u8>(), 0..80)) {
        let selected = Readings::new(ANY).select(&path, <[u8]>::to_vec);
        prop_assert!(selected.is_err() || selected.is_ok_and(|reading| reading.starts_with(b"/")));
    }
}
