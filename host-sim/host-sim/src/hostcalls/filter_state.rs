//! Envoy's foreign function `set_envoy_filter_state`: objects that filters of Envoy's own look for, by name.
//!
//! There are no such filters here; the objects take what Envoy's take and read as Envoy's read.

use std::net::{IpAddr, SocketAddr};

use prost::Message;

use crate::{
    abi::Status,
    state::{
        VmState,
        filter_state::{StateObject, StateValue},
    },
};

/// What Envoy 1.40 makes of the bytes for an object.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Any bytes.
    Text,
    /// Any bytes but none.
    SomeText,
    /// Read by Envoy alone: nothing to be had back.
    Hidden,
    /// `true`, `t`, `yes`, `y`, `1` and their opposites.
    Bool,
    /// True for `true`, and false for anything else.
    Flag,
    /// A number that fits this number of bits.
    Number(u32),
    /// An address.
    Ip,
    /// An address and a port.
    Socket,
    /// A name and an address with its port, with a comma between them.
    Proxy,
}

/// The objects by name, as `filter_state.object` in the list that Envoy writes when it starts.
fn kind(name: &[u8]) -> Option<Kind> {
    Some(match name {
        b"envoy.hashable_string"
        | b"envoy.network.network_namespace"
        | b"envoy.network.upstream_server_name"
        | b"envoy.network.upstream_subject_alt_names"
        | b"envoy.string"
        | b"envoy.tcp_proxy.cluster"
        | b"envoy.upstream.dynamic_host" => Kind::Text,
        b"envoy.ai.model.request" => Kind::SomeText,
        b"envoy.network.application_protocols" | b"envoy.router.debug_config" => Kind::Hidden,
        b"envoy.bool" => Kind::Bool,
        b"envoy.tcp_proxy.disable_tunneling" => Kind::Flag,
        b"envoy.ratelimit.hits_addend" | b"envoy.upstream.dynamic_port" => Kind::Number(32),
        b"envoy.tcp_proxy.per_connection_idle_timeout_ms" => Kind::Number(64),
        b"envoy.network.ip" => Kind::Ip,
        b"envoy.filters.listener.original_dst.local_ip"
        | b"envoy.filters.listener.original_dst.remote_ip"
        | b"envoy.network.transport_socket.original_dst_address" => Kind::Socket,
        b"envoy.network.transport_socket.http_11_proxy.info" => Kind::Proxy,
        _ => return None,
    })
}

impl Kind {
    /// The object that is made of the bytes; none when they are not of its kind.
    fn read(self, bytes: &[u8]) -> Option<StateValue> {
        let text = || std::str::from_utf8(bytes).ok();
        let told = |text: String| StateValue::Text(text.into());
        Some(match self {
            Self::Text => StateValue::Text(bytes.to_vec().into()),
            Self::SomeText if bytes.is_empty() => return None,
            Self::SomeText => StateValue::Text(bytes.to_vec().into()),
            Self::Hidden => StateValue::Hidden,
            Self::Bool => match text()?.to_ascii_lowercase().as_str() {
                "true" | "t" | "yes" | "y" | "1" => told("true".to_owned()),
                "false" | "f" | "no" | "n" | "0" => told("false".to_owned()),
                _ => return None,
            },
            Self::Flag => told((bytes == b"true").to_string()),
            Self::Number(bits) => {
                let number: u64 = text()?.trim_ascii().parse().ok()?;
                told(
                    u128::from(number)
                        .checked_shr(bits)
                        .filter(|beyond| *beyond == 0)
                        .map(|_| number)?
                        .to_string(),
                )
            }
            Self::Ip => told(SocketAddr::new(text()?.parse::<IpAddr>().ok()?, 0).to_string()),
            Self::Socket => StateValue::Address(text()?.parse().ok()?),
            Self::Proxy => {
                let (_, address) = text()?.split_once(',')?;
                address.parse::<SocketAddr>().ok()?;
                StateValue::Hidden
            }
        })
    }
}

/// `SetEnvoyFilterStateArguments`. How long the object lives cannot be told here: its stream is all that there is.
#[derive(Message)]
struct SetFilterState {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

pub(super) fn set(state: &mut VmState, arguments: &[u8]) -> Result<Vec<u8>, Status> {
    let SetFilterState { name, value } =
        SetFilterState::decode(arguments).map_err(|_| Status::BadArgument)?;
    let value = kind(&name).ok_or(Status::NotFound)?.read(&value).ok_or(Status::BadArgument)?;
    let stream = state.current_stream().ok_or(Status::NotFound)?;
    stream.filter_state.set(name, StateObject { value, readonly: false });
    Ok(Vec::new())
}
