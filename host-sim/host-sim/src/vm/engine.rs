//! What compiles and runs modules. Compiled code carries no state from run to run, so one engine of each kind serves every
//! host of the process.

use std::{
    sync::{LazyLock, mpsc},
    thread,
};

use wasmtime::{Config, Engine, Linker, WasmBacktraceDetails};

use crate::{
    hostcalls,
    rules::EnvoyVersion,
    state::{VmState, allowance::TICK},
};

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

static PLAIN: LazyLock<Machine> = LazyLock::new(|| machine(Compiler::Plain));
static METERED: LazyLock<Machine> = LazyLock::new(|| machine(Compiler::Metered));

fn machine(compiler: Compiler) -> Machine {
    let mut config = Config::new();
    config.epoch_interruption(true);
    config.wasm_backtrace_details(WasmBacktraceDetails::Enable);
    config.consume_fuel(compiler == Compiler::Metered);
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
    /// What compiles and runs.
    pub(crate) fn machine(self) -> &'static Machine {
        match self {
            Self::Plain => &PLAIN,
            Self::Metered => &METERED,
        }
    }
}

impl Machine {
    pub(crate) fn linker(&self, version: EnvoyVersion) -> &Linker<VmState> {
        if version < EnvoyVersion::V1_39 { &self.until_1_38 } else { &self.since_1_39 }
    }
}
