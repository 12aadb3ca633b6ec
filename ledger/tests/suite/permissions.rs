//! A user of the store who may do what the ledger needs, and nothing else.

use crate::process::Process;
use crate::shares::pass_the_cases;
use crate::store::{Cluster, ENGINES, Redis, until};

/// What the user of a single server may do.
const NEEDED: [&str; 9] =
    ["+info", "+script|load", "+evalsha", "+get", "+set", "+hmget", "+hset", "+del", "+expire"];
/// What the user may do besides on each node of a cluster.
const NEEDED_IN_CLUSTER: [&str; 3] = ["+cluster|info", "+cluster|slots", "+asking"];

/// Makes the user with a password.
fn set_user(redis: &Redis, permissions: &[&str]) {
    let set = redis.cli(&format!("acl setuser weir reset on >secret ~weir:* {}", permissions.join(" ")));
    assert_eq!(set, "OK");
}

fn url(redis: &Redis) -> String {
    format!("redis://weir:secret@127.0.0.1:{}", redis.port)
}

#[tokio::test]
async fn a_user_of_a_single_server_may_do_no_more_than_needed() {
    for engine in ENGINES {
        let redis = engine.start().await;
        set_user(&redis, &NEEDED);
        pass_the_cases(&Process::start(&["--store", &url(&redis)]).await, 1).await;
        assert_eq!(redis.cli("acl log"), "", "nothing else is tried");
        // Each permission is needed: without it the ledger is not ready.
        for absent in NEEDED {
            set_user(
                &redis,
                &NEEDED.into_iter().filter(|permission| *permission != absent).collect::<Vec<_>>(),
            );
            let ledger = Process::start_unready(&["--store", &url(&redis)]);
            until(absent, async || ledger.log().contains("the store cannot be used")).await;
            // Redis says another thing of a command than of a script that uses it.
            let says =
                ["has no permissions", "can't run this command"].map(|part| ledger.log().contains(part));
            assert!(says.contains(&true), "{absent}: {}", ledger.log());
        }
    }
}

#[tokio::test]
async fn a_user_of_a_cluster_may_do_no_more_than_needed() {
    for engine in ENGINES {
        let cluster = Cluster::start(engine).await;
        let needed: Vec<&str> = NEEDED.into_iter().chain(NEEDED_IN_CLUSTER).collect();
        cluster.nodes.iter().for_each(|node| set_user(node, &needed));
        // A replica alone leads to the masters, with the same user.
        let seed = url(&cluster.nodes[5]);
        pass_the_cases(&Process::start(&["--store", &seed, "--cluster"]).await, 1).await;
        for node in &cluster.nodes {
            assert_eq!(node.cli("acl log"), "", "nothing else is tried");
        }
        for absent in NEEDED_IN_CLUSTER {
            let some: Vec<&str> = needed.iter().copied().filter(|permission| *permission != absent).collect();
            cluster.nodes.iter().for_each(|node| set_user(node, &some));
            let ledger = Process::start_unready(&["--store", &seed, "--cluster"]);
            until(absent, async || ledger.log().contains("has no permissions")).await;
        }
    }
}
