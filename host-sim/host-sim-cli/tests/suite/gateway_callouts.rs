//! Calls of the filter to clusters, through the live gateway.

use std::{
    io::{BufReader, Write as _},
    net::{SocketAddr, TcpListener},
};

use crate::http::{echo, gateway_with, get, read_message, upstream};

/// A cluster that answers every request with this number of bytes.
fn cluster_of(bytes: usize) -> SocketAddr {
    upstream(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while read_message(&mut reader).is_some() {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
            if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b'x'; bytes])).is_err()
            {
                return;
            }
        }
    })
}

#[test]
fn an_answer_of_32_mebibytes_reaches_the_filter_whole_and_a_larger_one_is_broken_off() {
    const MOST: usize = 32 << 20;
    //  the answer's size, what of it reaches the filter, the status: this filter refuses what was not answered
    for (size, reaching, status) in [(MOST, MOST, 200), (MOST + 1, 0, 403)] {
        let gateway = gateway_with("callouts", upstream(echo), Some(cluster_of(size)));
        assert_eq!(get(gateway.address(), "/").status(), status, "{size} bytes");
        let said = gateway.host().logs().take();
        let told = |text: &str| said.iter().any(|line| line.message.contains(text));
        assert!(told(&format!("and {reaching} bytes")), "{said:?}");
        assert_eq!(told("has more than 32 MiB, and is broken off"), reaching == 0, "{said:?}");
    }
}

#[test]
fn a_callout_goes_to_its_cluster_and_the_paused_request_goes_on() {
    let cluster = upstream(echo);
    let gateway = gateway_with("callouts", upstream(echo), Some(cluster));
    assert_eq!(get(gateway.address(), "/").status(), 200);
    let said = gateway.host().logs().take();
    assert!(said.iter().any(|line| line.message.starts_with("body GET /check HTTP/1.1")), "{said:?}");
}

#[test]
fn an_upstream_or_a_cluster_that_is_not_there_is_answered_503() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let answer = get(gateway_with("limiter", free, None).address(), "/");
    assert_eq!(answer.status(), 503);
    assert!(answer.text().starts_with("upstream connect error"), "{}", answer.text());

    let gateway = gateway_with("callouts", upstream(echo), Some(free));
    assert_eq!(get(gateway.address(), "/").status(), 403, "the filter saw 503 and refused");
}
