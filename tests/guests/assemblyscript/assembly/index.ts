// A filter of the AssemblyScript SDK. It tells what it sees, and changes what comes by.
export * from "@solo-io/proxy-runtime/proxy";
import {
  BaseContext,
  Context,
  Counter,
  FilterDataStatusValues,
  FilterHeadersStatusValues,
  GrpcStatusValues,
  HeaderPair,
  Headers,
  LogLevelValues,
  RootContext,
  WasmResultValues,
  continue_request,
  log,
  registerRootContext,
  send_local_response,
  stream_context,
} from "@solo-io/proxy-runtime";
import {
  BufferTypeValues,
  get_buffer_bytes,
  get_property,
  set_property,
  set_tick_period_milliseconds,
} from "@solo-io/proxy-runtime/runtime";

// The SDK has no wrapper for it.
// @ts-ignore: decorator
@external("env", "proxy_set_buffer_bytes")
declare function proxy_set_buffer_bytes(kind: u32, start: u32, length: u32, bytes: usize, size: u32): u32;

function tell(message: string): void {
  log(LogLevelValues.info, message);
}

function text(bytes: ArrayBuffer): string {
  return String.UTF8.decode(bytes);
}

function pair(name: string, value: string): HeaderPair {
  return new HeaderPair(String.UTF8.encode(name), String.UTF8.encode(value));
}

function setBuffer(kind: BufferTypeValues, start: u32, length: u32, body: string): u32 {
  let bytes = String.UTF8.encode(body);
  return proxy_set_buffer_bytes(kind, start, length, changetype<usize>(bytes), bytes.byteLength);
}

class Root extends RootContext {
  requests: Counter | null = null;
  ticks: u32 = 0;

  onConfigure(size: u32): bool {
    super.onConfigure(size);
    let configuration = this.getConfiguration();
    tell(text(get_property("plugin_root_id")) + " configured with " + configuration);
    this.requests = new Counter("guest_requests");
    if (configuration.includes("tick")) set_tick_period_milliseconds(50);
    return configuration != "refuse";
  }

  onTick(): void {
    this.ticks++;
    tell("tick " + this.ticks.toString());
    if (this.ticks == 2) set_tick_period_milliseconds(0);
  }

  createContext(id: u32): Context {
    return new Stream(id, this);
  }
}

class Stream extends Context {
  constructor(id: u32, root: Root) {
    super(id, root);
  }

  onRequestHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    let request = stream_context.headers.request;
    let headers = request.get_headers();
    tell("request of " + count.toString() + " headers, end " + end.toString());
    for (let i = 0; i < headers.length; i++) {
      tell("-> " + text(headers[i].key) + ": " + text(headers[i].value));
    }
    let counted = (this.root_context as Root).requests!.increment(1);
    tell("incremented: " + counted.toString());
    tell("x-absent: " + request.get("x-absent"));
    request.replace("x-one", "first");
    request.add("x-guest", "assemblyscript");
    request.remove("x-gone");
    request.remove("content-length");
    tell("set: " + set_property("guest", String.UTF8.encode("kept")).toString());

    let path = request.get(":path");
    if (path == "/hello") {
      let body = String.UTF8.encode("hello from AssemblyScript");
      send_local_response(200, "hello", body, [pair("hello", "world")], GrpcStatusValues.InvalidCode);
      return FilterHeadersStatusValues.StopIteration;
    }
    if (path == "/abort") throw new Error("asked for");
    if (path == "/call") return this.ask("auth");
    if (path == "/fails") return this.ask("broken");
    if (path == "/nobody") return this.ask("nobody");
    return FilterHeadersStatusValues.Continue;
  }

  ask(cluster: string): FilterHeadersStatusValues {
    let asks: Headers = [pair(":method", "POST"), pair(":path", "/may"), pair(":authority", "auth.test")];
    let answered = (origin: Context, count: u32, size: usize, trailers: u32): void => {
      let code = stream_context.headers.http_callback.get(":status");
      let body = text(get_buffer_bytes(BufferTypeValues.HttpCallResponseBody, 0, size as u32));
      tell("answer " + code + " of " + count.toString() + " headers: " + body);
      if (count == 0 || code != "200") {
        let refused = String.UTF8.encode("refused");
        send_local_response(403, "refused", refused, [], GrpcStatusValues.PermissionDenied);
        return;
      }
      stream_context.headers.request.add("x-asked", body);
      tell("continued: " + continue_request().toString());
    };
    let question = String.UTF8.encode("may it?");
    let result = this.root_context.httpCall(cluster, asks, question, [], 5000, this, answered);
    if (result != WasmResultValues.Ok) {
      tell("not called: " + result.toString());
      send_local_response(500, "no call", String.UTF8.encode("no call"), [], GrpcStatusValues.Internal);
    }
    return FilterHeadersStatusValues.StopIteration;
  }

  onRequestBody(size: usize, end: bool): FilterDataStatusValues {
    if (!end) return FilterDataStatusValues.StopIterationAndBuffer;
    let body = text(get_buffer_bytes(BufferTypeValues.HttpRequestBody, 0, size as u32));
    tell("request body of " + size.toString() + ": " + body);
    let replaced = setBuffer(BufferTypeValues.HttpRequestBody, 0, size as u32, body.toUpperCase());
    tell("replaced: " + replaced.toString());
    return FilterDataStatusValues.Continue;
  }

  onResponseHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    let response = stream_context.headers.response;
    tell("<- :status: " + response.get(":status") + ", end " + end.toString());
    response.remove("content-length");
    response.replace("x-served-by", "assemblyscript");
    return FilterHeadersStatusValues.Continue;
  }

  onResponseBody(size: usize, end: bool): FilterDataStatusValues {
    if (!end) return FilterDataStatusValues.StopIterationAndBuffer;
    let body = text(get_buffer_bytes(BufferTypeValues.HttpResponseBody, 0, size as u32));
    tell("response body: " + body);
    if (size > 0) tell("appended: " + setBuffer(BufferTypeValues.HttpResponseBody, size as u32, 0, " and more").toString());
    return FilterDataStatusValues.Continue;
  }

  onLog(): void {
    super.onLog();
    tell("kept: " + text(get_property("guest")));
  }
}

registerRootContext((id: u32) => new Root(id), "assemblyscript");
