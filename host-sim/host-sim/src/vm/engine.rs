//! What compiles and runs modules. Compiled code carries no state from run to run, so one engine of each kind serves every
//! host of the process.

use std::{
    sync::{LazyLock, mpsc},
    thread,
    time::Duration,
};

use wasmtime::{Config, Engine, Linker, WasmBacktraceDetails};

use crate::{
    flavour::EnvoyVersion,
    hostcalls,
    vm::{code_cache, state::VmState},
};

/// How often an engine looks whether a guest has run for too long.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// How a module is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compiler {
    /// To run.
    #[default]
    Plain,
    /// To run and count its instructions, which makes it slower. A [trace](crate::Builder::on_trace) has the counts.
    Metered,
}

/// An engine with the host functions by version of Envoy.
pub(crate) struct Machine {
    pub(crate) engine: Engine,
    until_1_38: Linker<VmState>,
    since_1_39: Linker<VmState>,
}

static PLAIN: LazyLock<Machine> = LazyLock::new(|| machine(Compiler::Plain, false));
static PLAIN_KEPT: LazyLock<Machine> = LazyLock::new(|| machine(Compiler::Plain, true));
static METERED: LazyLock<Machine> = LazyLock::new(|| machine(Compiler::Metered, false));
static METERED_KEPT: LazyLock<Machine> = LazyLock::new(|| machine(Compiler::Metered, true));

fn machine(compiler: Compiler, keeps_code: bool) -> Machine {
    let mut config = Config::new();
    config.epoch_interruption(true);
    config.wasm_backtrace_details(WasmBacktraceDetails::Enable);
    config.consume_fuel(compiler == Compiler::Metered);
    if keeps_code {
        config
            .enable_incremental_compilation(code_cache::store())
            .expect("this compiler can keep what it compiles");
    }
    let engine = Engine::new(&config).expect("these options suit every platform that wasmtime has");
    let ticking = engine.clone();
    thread::Builder::new()
        .name("wasm-epoch".to_owned())
        .spawn(move || {
            // Nothing is ever sent: the wait is the tick. The sender lives as long as the process.
            let (_alive, never) = mpsc::channel::<()>();
            while never.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
                ticking.increment_epoch();
            }
        })
        .expect("a process that cannot start one thread cannot run guests either");
    let (until_1_38, since_1_39) =
        (linker(&engine, EnvoyVersion::V1_38), linker(&engine, EnvoyVersion::V1_39));
    Machine { engine, until_1_38, since_1_39 }
}

fn linker(engine: &Engine, version: EnvoyVersion) -> Linker<VmState> {
    let mut linker = Linker::new(engine);
    hostcalls::link(&mut linker, version).expect("each host function is defined once");
    linker
}

impl Compiler {
    /// What compiles and runs. One that keeps code takes longer for what it has not kept.
    pub(crate) fn machine(self, keeps_code: bool) -> &'static Machine {
        match (self, keeps_code) {
            (Self::Plain, false) => &PLAIN,
            (Self::Plain, true) => &PLAIN_KEPT,
            (Self::Metered, false) => &METERED,
            (Self::Metered, true) => &METERED_KEPT,
        }
    }
}

impl Machine {
    pub(crate) fn linker(&self, version: EnvoyVersion) -> &Linker<VmState> {
        if version < EnvoyVersion::V1_39 { &self.until_1_38 } else { &self.since_1_39 }
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Machine")
    }
}
