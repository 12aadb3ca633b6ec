//! Bearer tokens.

use tempfile::TempDir;

use crate::process::Process;
use crate::statement::shares;
use crate::store::until;

async fn status(ledger: &Process, authorization: Option<&str>) -> u16 {
    let headers: Vec<(&str, &str)> =
        authorization.map(|value| ("authorization", value)).into_iter().collect();
    let answer = ledger.send("POST", "/v1/shares", &headers, &shares(1, &[]).to_string()).await;
    if answer.status == 401 {
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        assert_eq!(answer.json()["error"]["code"], "unauthorized");
    }
    answer.status.as_u16()
}

#[tokio::test]
async fn two_tokens_are_accepted_at_once_and_nothing_else() {
    let ledger = Process::start(&["--token", "first-token,second+token="]).await;
    for (authorization, expected) in [
        (Some("Bearer first-token"), 200),
        (Some("bearer second+token="), 200),
        (Some("BEARER first-token"), 200),
        (Some("Bearer first-toke"), 401),
        (Some("Bearer first-token,second+token="), 401),
        (Some("Bearer First-token"), 401),
        (Some("Bearer "), 401),
        (Some("Bearer"), 401),
        (Some("Basic first-token"), 401),
        (Some("first-token"), 401),
        (Some(""), 401),
        (None, 401),
    ] {
        assert_eq!(status(&ledger, authorization).await, expected, "{authorization:?}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(ledger.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_token_is_changed_without_a_restart_and_without_a_gap() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "old\n").unwrap();
    let ledger = Process::start(&["--token-file", file.to_str().unwrap()]).await;
    let accepts = async |token: &str| status(&ledger, Some(&format!("Bearer {token}"))).await == 200;
    assert!(accepts("old").await && !accepts("new").await);
    std::fs::write(&file, "  new\n\nold\n").unwrap();
    until("the new token is accepted", async || {
        assert!(accepts("old").await, "a gap");
        accepts("new").await
    })
    .await;
    //  What cannot be used changes nothing.
    for content in ["", "two words\n"] {
        let before = ledger.log().matches("the tokens stay").count();
        std::fs::write(&file, content).unwrap();
        until("it is logged", async || ledger.log().matches("the tokens stay").count() > before).await;
        assert!(accepts("old").await && accepts("new").await, "{content:?}");
        std::fs::write(&file, "new\nold\n").unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
    }
    std::fs::write(&file, "new\n").unwrap();
    until("the old token is refused", async || {
        assert!(accepts("new").await, "a gap");
        !accepts("old").await
    })
    .await;
    assert!(!ledger.log().contains("old"), "{}", ledger.log());
}

#[tokio::test]
async fn options_that_cannot_be_used_are_refused_at_the_start() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (empty, words) = (path("empty", "\n\n"), path("words", "good\ntwo words\n"));
    //  options, part of the message
    for (options, message) in [
        (vec!["--token-file", "/nowhere/tokens"], "--token-file /nowhere/tokens: No such file"),
        (vec!["--token-file", &empty], "the file has no token"),
        (vec!["--token-file", &words], "line 2: a token is printable ASCII"),
        (vec!["--token", "a", "--token-file", &empty], "cannot be used with"),
        (vec!["--token", "a b"], "a token is printable ASCII"),
        (vec!["--token", ""], "a token is printable ASCII"),
        (vec!["--store", "redis://127.0.0.1:1,redis://127.0.0.1:2"], "several addresses need --cluster"),
        (vec!["--store", "memory", "--cluster"], "memory cannot be a cluster"),
        (
            vec!["--store", "memory,redis://127.0.0.1:1", "--cluster"],
            "expected memory, file:<path> or redis[s]://",
        ),
        (vec!["--store", "http://127.0.0.1"], "expected memory, file:<path> or redis[s]://"),
        (
            vec!["--store", "redis://127.0.0.1:1", "--store-ca", "/nowhere/ca"],
            "--store-ca /nowhere/ca: No such file",
        ),
        (vec!["--store", "rediss://127.0.0.1:1", "--store-ca", &words], "the file has no certificate"),
        (vec!["--store", "redis://127.0.0.1:1", "--store-ca", &words], "the file has no certificate"),
        (
            vec!["--store", "redis://127.0.0.1:1", "--store-password-file", "/nowhere/password"],
            "--store-password-file /nowhere/password: No such file",
        ),
        (
            vec!["--store", "redis://:a@127.0.0.1:1", "--store-password-file", &words],
            "has a password beside --store-password-file",
        ),
        (vec!["--store", "rediss://127.0.0.1:1", "--store-cert", &words], "--store-key"),
        (
            vec!["--store", "rediss://127.0.0.1:1", "--store-cert", &words, "--store-key", &words],
            "the file has no certificate",
        ),
        (
            vec!["--store", "redis://127.0.0.1:1,127.0.0.1:2", "--cluster"],
            "expected memory, file:<path> or redis[s]://",
        ),
        (vec!["--key-prefix", "{a}"], "expected letters, digits"),
        (vec!["--metrics-listen", "127.0.0.1"], "invalid socket address"),
        (vec!["--metrics-listen", "192.0.2.1:1"], "--metrics-listen 192.0.2.1:1"),
    ] {
        let (status, log) = Process::fail(&options).await;
        assert!(!status.success() && log.contains(message), "{options:?}: {log}");
    }
}
