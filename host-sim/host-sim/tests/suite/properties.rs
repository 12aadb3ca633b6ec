//! Properties.

use std::time::Duration;

use host_sim::{Host, Plugin, Request, Response};

use crate::{guests, lines};

fn loaded() -> Host {
    let plugin = Plugin::default().name("p").root_id("r").vm_id("v");
    let mut host = Host::builder().build();
    host.load(&host_sim::Module::compile(guests::guest("properties")).unwrap(), plugin).unwrap();
    host
}

#[test]
fn a_root_context_knows_the_plugin_and_no_stream() {
    let host = loaded();
    assert_eq!(
        lines(&host)[..5],
        [
            "plugin_name p",
            "plugin_root_id r",
            "plugin_vm_id v",
            "source\0address status 1",
            "set without a stream 1",
        ]
    );
}

#[test]
fn a_stream_knows_its_request_its_connection_and_what_a_test_gives() {
    let host = loaded();
    host.logs().take();
    let request = Request::get("/a?b=c")
        .source("[2001:db8::1]:5000")
        .connection(7)
        .header("x-many", "1")
        .header("x-many", "2")
        .property(["xds", "route_name"], "redirect")
        .property(["metadata", "filter_metadata", "jwt"], serde_json::json!({"payload": {"sub": "acme"}}));
    host.send(request, |_| Response::new(204));
    assert_eq!(
        lines(&host),
        [
            "source\0address [2001:db8::1]:5000",
            "source\0port 5000",
            "request\0path /a?b=c",
            "request\0url_path /a",
            "request\0query b=c",
            "request\0method GET",
            "request\0host localhost",
            "request\0headers\0x-many 1,2",
            "request\0protocol HTTP/1.1",
            "connection\0id 7",
            "connection_id 7",
            "xds\0route_name redirect",
            "metadata\0filter_metadata\0jwt\0payload\0sub acme",
            "nothing\0here status 1",
            " status 3",
            "set 0",
            "mine kept",
            "filter_state\0wasm.mine kept",
            "response\0code status 1",
            // The request's headers are closed once the filter has let them go on.
            "request\0path status 1",
            "response\0code 204",
            "mine kept",
            // They are open again to the log.
            "request\0path /a?b=c",
            "source\0address [2001:db8::1]:5000",
            "response\0code 204",
        ]
    );
}

#[test]
fn what_only_a_gateway_knows_warns_by_name_once_and_what_is_given_does_not() {
    let plugin = Plugin::default();
    let builder = Host::builder().property(["xds", "cluster_name"], "c").undecided("route_name");
    let mut host = builder.build();
    host.load(&host_sim::Module::compile(guests::guest("surroundings")).unwrap(), plugin).unwrap();
    for _ in 0..2 {
        host.send(Request::get("/"), |_| Response::ok());
        host.advance(Duration::from_secs(1));
    }
    let warned: Vec<String> = host
        .logs()
        .lines()
        .into_iter()
        .filter_map(|line| Some(line.message.strip_prefix("the property ")?.split(' ').next()?.to_owned()))
        .collect();
    assert_eq!(
        warned,
        [
            "xds.node.id",
            "xds.node.cluster",
            "xds.node.metadata",
            "xds.route_name",
            "xds.virtual_host_name",
            "upstream.address",
            "upstream.port",
            "upstream.local_address",
        ]
    );
}
