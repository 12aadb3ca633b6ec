//! What requests and answers of a scenario have in common.

/// Makes a part of a scenario that is a message, read from its own fields and from those of all messages, and written as `$built`.
///
/// A struct of the common fields, flattened into both, would take unknown fields without a word.
macro_rules! message {
    ($(#[$outer:meta])* pub struct $name:ident as $built:ty { $($(#[$inner:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$outer])*
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$inner])* pub $field: $type,)*
            /// Headers.
            #[serde(default)]
            pub headers: std::collections::BTreeMap<String, $crate::scenario::Lines>,
            /// The body.
            #[serde(default)]
            pub body: String,
            /// Instead of `body`: its pieces, each of which comes by itself.
            #[serde(default)]
            pub chunks: Vec<String>,
            /// Whether the body is sent without its length.
            #[serde(default)]
            pub chunked: bool,
            /// Trailers, after the body.
            #[serde(default)]
            pub trailers: std::collections::BTreeMap<String, String>,
        }

        impl $name {
            fn with_body(&self, message: $built) -> $built {
                if self.chunks.is_empty() { message.body(self.body.clone()) } else { message.chunks(&self.chunks) }
            }

            fn with_fields(&self, mut message: $built) -> $built {
                for (name, lines) in &self.headers {
                    for line in lines.iter() {
                        message = message.header(name.clone(), line.clone());
                    }
                }
                for (name, value) in &self.trailers {
                    message = message.trailer(name.clone(), value.clone());
                }
                if self.chunked { message.chunked() } else { message }
            }
        }
    };
}

pub(super) use message;
