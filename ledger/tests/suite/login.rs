//! Passwords of the store.

use tempfile::TempDir;

use crate::process::Process;
use crate::statement::{ask, shares};
use crate::store::{Redis, until};

/// A server with a user who has this password.
async fn start(password: &str) -> Redis {
    let redis = Redis::start().await;
    assert_eq!(redis.cli(&format!("acl setuser weir on ~* +@all >{password}")), "OK");
    redis
}

#[tokio::test]
async fn any_password_is_taken_from_a_file_or_as_an_address_has_it_and_one_that_is_not_encoded_is_said_to_be_so()
 {
    //  a password, how an address has it, and whether it may also be there as it is
    for (password, encoded, may_be_plain) in [
        ("plain", "plain", true),
        ("a,b", "a,b", true),
        ("a,,b,", "a%2C,b,", true),
        ("a:b@c", "a:b%40c", true),
        ("a/b", "a%2Fb", false),
        ("a#b", "a%23b", false),
        ("a?b", "a%3Fb", false),
        ("12#b", "12%23b", false),
        ("12/b?c,d", "12%2Fb%3Fc,d", false),
        ("50%25", "50%2525", false),
    ] {
        let redis = start(password).await;
        let url = |password: &str| format!("redis://weir:{password}@127.0.0.1:{}", redis.port);
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, format!("{password}\n")).unwrap();
        let without = format!("redis://weir@127.0.0.1:{}", redis.port);
        Process::start(&["--store", &without, "--store-password-file", file.to_str().unwrap()]).await;
        Process::start(&["--store", &url(encoded)]).await;
        if may_be_plain {
            Process::start(&["--store", &url(password)]).await;
        } else if !password.contains('%') {
            let (status, log) = Process::fail(&["--store", &url(password)]).await;
            let says_what_to_write = log.contains("write / as %2F, ? as %3F, # as %23 and % as %25");
            assert!(!status.success() && says_what_to_write && !log.contains(password), "{password}: {log}");
        }
    }
}

#[tokio::test]
async fn a_password_is_changed_without_a_restart() {
    let redis = start("old").await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "old").unwrap();
    let url = format!("redis://weir@127.0.0.1:{}", redis.port);
    let ledger = Process::start(&["--store", &url, "--store-password-file", file.to_str().unwrap()]).await;
    let mut seq = 0;
    let mut grants = async || {
        seq += 1;
        let answer = ledger.post("/v1/shares", &shares(1, &[ask(1, seq, 0, 1, 1, 10)])).await;
        answer.status == 200 && answer.json()["items"][0]["share"] == 1
    };
    assert!(grants().await);
    redis.cli("acl setuser weir >new");
    std::fs::write(&file, "new\n").unwrap();
    redis.cli("acl setuser weir <old");
    assert!(grants().await, "a connection is not ended by a change");
    redis.cli("client kill type normal");
    until("the new password is used", &mut grants).await;

    // What cannot be used is said, and read again.
    for (content, said) in [("wrong", "Password authentication failed"), ("\n", "the file is empty")] {
        std::fs::write(&file, content).unwrap();
        redis.cli("client kill type normal");
        until("it is refused", async || ledger.get("/readyz").await.body.contains(said)).await;
        let metrics = ledger.get_metrics().await.body;
        assert!(metrics.contains("weir_ledger_store_masters{state=\"refuses\"} 1"), "{metrics}");
        assert_eq!(ledger.log().matches(said).count(), 1, "{}", ledger.log());
        std::fs::write(&file, "new").unwrap();
        until("the new password is used", &mut grants).await;
    }
}
