//! Where in the guest's code something happened: functions, files and lines, as far as the module names them.

use std::fmt;

use wasmtime::WasmBacktrace;

/// How to get files and lines into a module.
pub(crate) const HOW_TO_BUILD: &str = "the module has no debug information, so there are no files and lines: build it with \
     `debug = true` and `strip = false` in its Cargo profile, or with `-g` in C++ and TinyGo";

/// Parts of paths of code that the filter's author has not written: the standard library's and other crates'.
const PATHS_OF_OTHERS: [&str; 4] = ["/rustc/", "/rustlib/src/", "/registry/src/", "/git/checkouts/"];

/// Beginnings of names of such functions, where there is no path.
const NAMES_OF_OTHERS: [&str; 9] =
    ["core::", "std::", "alloc::", "<core::", "<alloc::", "rust_", "__rust", "proxy_wasm::", "__rustc"];

/// A function of the guest that was running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFrame {
    /// Its name, demangled where it is Rust's, or `function 12` where the module names none.
    pub function: String,
    /// The file of its source.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u32>,
    /// The column, counted from 1.
    pub column: Option<u32>,
    /// Whether the compiler has put it into the function that follows.
    pub inlined: bool,
}

impl GuestFrame {
    /// Whether the code is the author's, as far as path and name tell.
    fn is_own(&self) -> bool {
        let begins = |names: &[&str]| names.iter().any(|name| self.function.starts_with(name));
        match &self.file {
            Some(file) => !PATHS_OF_OTHERS.iter().any(|path| file.contains(path)),
            None => !begins(&NAMES_OF_OTHERS),
        }
    }
}

impl fmt::Display for GuestFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        let Some(file) = &self.file else { return Ok(()) };
        write!(f, " ({file}")?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        f.write_str(")")
    }
}

/// The functions of the guest that were running when it trapped, the innermost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestBacktrace {
    frames: Box<[GuestFrame]>,
}

/// A name as its author wrote it.
fn demangled(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

impl GuestBacktrace {
    /// What the error of a guest that trapped carries.
    pub(crate) fn of(error: &wasmtime::Error) -> Self {
        error.downcast_ref::<WasmBacktrace>().map(Self::read).unwrap_or_default()
    }

    /// Where the guest is that makes a host call.
    pub(crate) fn of_caller(store: impl wasmtime::AsContext) -> Self {
        Self::read(&WasmBacktrace::capture(store))
    }

    fn read(trace: &WasmBacktrace) -> Self {
        let mut frames = Vec::new();
        for frame in trace.frames() {
            let name = match frame.func_name() {
                Some(name) => demangled(name),
                None => format!("function {}", frame.func_index()),
            };
            let symbols = frame.symbols();
            for (index, symbol) in symbols.iter().enumerate() {
                frames.push(GuestFrame {
                    function: symbol.name().map_or_else(|| name.clone(), demangled),
                    file: symbol.file().map(str::to_owned),
                    line: symbol.line(),
                    column: symbol.column().filter(|column| *column > 0),
                    inlined: index + 1 < symbols.len(),
                });
            }
            if symbols.is_empty() {
                frames.push(GuestFrame {
                    function: name,
                    file: None,
                    line: None,
                    column: None,
                    inlined: false,
                });
            }
        }
        Self { frames: frames.into() }
    }

    /// The functions, the innermost first. One that the compiler has inlined is before the one that holds it.
    pub fn frames(&self) -> &[GuestFrame] {
        &self.frames
    }

    /// The innermost function that is the author's and not of a library, as far as paths and names tell.
    pub fn place(&self) -> Option<&GuestFrame> {
        let own = || self.frames.iter().filter(|frame| frame.is_own());
        own().find(|frame| frame.file.is_some()).or_else(|| own().next()).or_else(|| self.frames.first())
    }

    /// Whether the module names files and lines.
    pub fn has_lines(&self) -> bool {
        self.frames.iter().any(|frame| frame.line.is_some())
    }
}

impl fmt::Display for GuestBacktrace {
    /// A line for each function, and how to get files and lines where there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut number = 0;
        for (index, frame) in self.frames.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let holds = index.checked_sub(1).and_then(|before| self.frames.get(before));
            if holds.is_some_and(|before| before.inlined) {
                write!(f, "      inlined into {frame}")?;
            } else {
                write!(f, "  {number:>2}: {frame}")?;
                number += 1;
            }
        }
        if !self.frames.is_empty() && !self.has_lines() {
            write!(f, "\n  {HOW_TO_BUILD}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: Option<&str>, line: u32, inlined: bool) -> GuestFrame {
        let file = file.map(str::to_owned);
        let line = file.as_ref().map(|_| line);
        GuestFrame { function: function.to_owned(), column: line.map(|_| 5), file, line, inlined }
    }

    #[test]
    fn the_place_is_the_innermost_of_the_authors_own_functions() {
        let std =
            frame("core::option::unwrap_failed", Some("/rustc/abc/library/core/src/option.rs"), 9, true);
        let sdk =
            frame("get_buffer", Some("~/.cargo/registry/src/x/proxy-wasm-0.2.5/src/hostcalls.rs"), 8, false);
        let own = frame("limits::check", Some("src/lib.rs"), 31, true);
        let outer = frame("proxy_on_request_headers", Some("src/lib.rs"), 12, false);
        let bare = |name| frame(name, None, 0, false);
        let rows: [(&[GuestFrame], &str); 5] = [
            (&[std.clone(), sdk.clone(), own.clone(), outer.clone()], "limits::check (src/lib.rs:31:5)"),
            (&[bare("memcpy"), outer], "proxy_on_request_headers (src/lib.rs:12:5)"),
            (&[bare("core::panicking::panic_fmt"), bare("limits::check")], "limits::check"),
            (
                std::slice::from_ref(&std),
                "core::option::unwrap_failed (/rustc/abc/library/core/src/option.rs:9:5)",
            ),
            (&[bare("rust_panic")], "rust_panic"),
        ];
        for (frames, place) in rows {
            let backtrace = GuestBacktrace { frames: frames.into() };
            assert_eq!(backtrace.place().map(ToString::to_string).as_deref(), Some(place));
        }
        assert_eq!(GuestBacktrace::default().place(), None);
    }

    #[test]
    fn inlined_functions_are_shown_with_those_that_hold_them() {
        let frames = vec![
            frame("check", Some("a.rs"), 3, true),
            frame("decide", Some("a.rs"), 9, false),
            frame("main", Some("b.rs"), 1, false),
        ];
        let expected = "   0: check (a.rs:3:5)\n      inlined into decide (a.rs:9:5)\n   1: main (b.rs:1:5)";
        assert_eq!(GuestBacktrace { frames: frames.into() }.to_string(), expected);
        let frames = vec![frame("main", None, 0, false)];
        assert_eq!(
            GuestBacktrace { frames: frames.into() }.to_string(),
            format!("   0: main\n  {HOW_TO_BUILD}")
        );
    }
}
