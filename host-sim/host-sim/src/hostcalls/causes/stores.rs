//! Shared data and queues.

use crate::{abi::Status, hostcalls::causes::asked::Asked};

pub(super) fn shared_data(asked: &Asked<'_>) -> String {
    let key = asked.text("key");
    let stored = || asked.state.namespace.get(asked.bytes("key")).map(|(_, cas)| cas);
    match asked.status {
        Status::NotFound => format!("no key {key:?} under this vm_id"),
        Status::CasMismatch => {
            let cas = asked.number("cas");
            match (stored(), cas) {
                (Ok(stored), 0) => {
                    format!("{key:?} exists, with cas {stored}: this host overwrites nothing without its cas")
                }
                (Ok(stored), _) => {
                    format!("{key:?} was changed since it was read: its cas is {stored}, not {cas}")
                }
                (Err(_), _) => {
                    format!("there is no {key:?}, and cas is {cas}: this host creates with cas 0 alone")
                }
            }
        }
        Status::Unimplemented => "this host has no shared data".to_owned(),
        status => status.to_string(),
    }
}

pub(super) fn queue(asked: &Asked<'_>) -> String {
    let token = asked.number("token");
    match (asked.status, asked.call) {
        (Status::NotFound, "proxy_resolve_shared_queue") => {
            format!(
                "no queue {:?} of vm_id {:?}: none has registered it",
                asked.text("name"),
                asked.text("vm_id")
            )
        }
        (Status::NotFound, _) => format!("no queue has token {token}"),
        (Status::Empty, _) => format!("queue {token} holds nothing"),
        (Status::Unimplemented, _) => "this host has no shared queues".to_owned(),
        (status, _) => status.to_string(),
    }
}
