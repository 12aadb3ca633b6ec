//! A proxy-wasm host on wasmtime that runs HTTP filters without a gateway.
