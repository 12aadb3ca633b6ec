//! Guests for tests, written in WAT with two conveniences: `(str "text")` stands for the address and length of a text
//! in the guest's memory, and the line `;; prelude` for `prelude.wat`.

pub(crate) mod caller;

/// The sources, by family of calls.
const SOURCES: &[(&str, &str)] = &[
    ("bodies", include_str!("bodies.wat")),
    ("buffers", include_str!("buffers.wat")),
    ("callouts", include_str!("callouts.wat")),
    ("chain", include_str!("chain.wat")),
    ("configuration", include_str!("configuration.wat")),
    ("contexts", include_str!("contexts.wat")),
    ("foreign", include_str!("foreign.wat")),
    ("grpc", include_str!("grpc.wat")),
    ("headers", include_str!("headers.wat")),
    ("lengths", include_str!("lengths.wat")),
    ("limiter", include_str!("limiter.wat")),
    ("memory", include_str!("memory.wat")),
    ("message", include_str!("message.wat")),
    ("metrics", include_str!("metrics.wat")),
    ("pairs", include_str!("pairs.wat")),
    ("phases", include_str!("phases.wat")),
    ("properties", include_str!("properties.wat")),
    ("queues", include_str!("queues.wat")),
    ("replies", include_str!("replies.wat")),
    ("resumes", include_str!("resumes.wat")),
    ("shared_data", include_str!("shared_data.wat")),
    ("sizes", include_str!("sizes.wat")),
    ("surroundings", include_str!("surroundings.wat")),
    ("ticks", include_str!("ticks.wat")),
    ("timers", include_str!("timers.wat")),
    ("traps", include_str!("traps.wat")),
    ("wasi", include_str!("wasi.wat")),
];

const PRELUDE: &str = include_str!("prelude.wat");

/// Where texts lie in a guest's memory: above what the prelude uses for itself.
const TEXTS_START: usize = 4096;

/// A guest's module, by its family.
pub(crate) fn guest(name: &str) -> Vec<u8> {
    let source = SOURCES.iter().find(|(family, _)| *family == name).map(|(_, source)| *source);
    let source = source.unwrap_or_else(|| panic!("no guest is named {name}"));
    assemble(source).unwrap_or_else(|error| panic!("{name}.wat: {error}"))
}

/// Assembles a guest's source.
pub(crate) fn assemble(source: &str) -> Result<Vec<u8>, String> {
    let source = source.replace(";; prelude", PRELUDE);
    let (mut text, mut data, mut address) = (String::new(), String::new(), TEXTS_START);
    let mut rest = source.as_str();
    while let Some((before, after)) = rest.split_once("(str \"") {
        let (literal, after) = after.split_once("\")").ok_or("a (str \"…\") without its end")?;
        // An escape is a backslash and two hexadecimal digits for one byte.
        let length = literal.len() - 2 * literal.matches('\\').count();
        text.push_str(before);
        text.push_str(&format!("(i32.const {address}) (i32.const {length})"));
        data.push_str(&format!("(data (i32.const {address}) \"{literal}\")\n"));
        address += length;
        rest = after;
    }
    text.push_str(rest);
    let end = text.trim_end().strip_suffix(')').ok_or("a source that does not end its module")?;
    wat::parse_str(format!("{end}\n{data})")).map_err(|error| error.to_string())
}
