// A filter of the C++ SDK. It tells what it sees, and changes what comes by.
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "proxy_wasm_intrinsics.h"

namespace {

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// What a call left, or what says that it left nothing.
std::string text(const WasmDataPtr &data) { return data ? data->toString() : "nothing"; }

void tell(const std::string &message) { logInfo(message); }

class Root : public RootContext {
public:
  explicit Root(uint32_t id, std::string_view root_id) : RootContext(id, root_id) {}

  bool onConfigure(size_t size) override {
    const auto configuration = text(getBufferBytes(WasmBufferType::PluginConfiguration, 0, size));
    tell(std::string(root_id()) + " configured with " + quoted(configuration));
    requests_.reset(Counter<>::New("guest_requests"));
    if (configuration.find("tick") != std::string::npos) {
      tell("tick: " + toString(proxy_set_tick_period_milliseconds(50)));
    }
    return configuration != "refuse";
  }

  void onTick() override {
    tell("tick " + std::to_string(++ticks_));
    if (ticks_ == 2) {
      proxy_set_tick_period_milliseconds(0);
    }
  }

  uint64_t count() {
    requests_->increment(1);
    return requests_->get();
  }

private:
  std::unique_ptr<Counter<>> requests_;
  int ticks_ = 0;
};

class Stream : public Context {
public:
  explicit Stream(uint32_t id, RootContext *root) : Context(id, root) {}

  FilterHeadersStatus onRequestHeaders(uint32_t count, bool end) override {
    tell("request of " + std::to_string(count) + " headers, end " + toString(end));
    const auto pairs = getRequestHeaderPairs();
    for (const auto &[name, value] : pairs->pairs()) {
      tell("-> " + std::string(name) + ": " + std::string(value));
    }
    tell("counted: " + std::to_string(static_cast<Root *>(root())->count()));
    tell("x-absent: " + quoted(getRequestHeader("x-absent")->view()));
    tell("replaced: " + toString(replaceRequestHeader("x-one", "first")));
    tell("added: " + toString(addRequestHeader("x-guest", "cpp")));
    tell("removed: " + toString(removeRequestHeader("x-gone")));
    removeRequestHeader("content-length");
    tell("state: " + toString(setFilterState("guest", "kept")));

    const auto path = getRequestHeader(":path")->toString();
    if (path == "/hello") {
      sendLocalResponse(200, "hello", "hello from C++\n", {{"hello", "world"}, {"x-empty", ""}});
      return FilterHeadersStatus::StopIteration;
    }
    if (path == "/abort") {
      logAbort("asked for");
    }
    if (path == "/call" || path == "/fails" || path == "/nobody") {
      ask(path == "/call" ? "auth" : path == "/fails" ? "broken" : "nobody");
      return FilterHeadersStatus::StopIteration;
    }
    return FilterHeadersStatus::Continue;
  }

  FilterDataStatus onRequestBody(size_t size, bool end) override {
    if (!end) {
      return FilterDataStatus::StopIterationAndBuffer;
    }
    auto body = text(getBufferBytes(WasmBufferType::HttpRequestBody, 0, size));
    tell("request body of " + std::to_string(size) + ": " + quoted(body));
    std::transform(body.begin(), body.end(), body.begin(), [](unsigned char letter) { return std::toupper(letter); });
    const auto replaced = setBuffer(WasmBufferType::HttpRequestBody, 0, size, body);
    tell("replaced: " + std::to_string(static_cast<uint32_t>(replaced)));
    return FilterDataStatus::Continue;
  }

  FilterHeadersStatus onResponseHeaders(uint32_t, bool end) override {
    tell("<- :status: " + getResponseHeader(":status")->toString() + ", end " + toString(end));
    removeResponseHeader("content-length");
    replaceResponseHeader("x-served-by", "cpp");
    return FilterHeadersStatus::Continue;
  }

  FilterDataStatus onResponseBody(size_t size, bool end) override {
    if (!end) {
      return FilterDataStatus::StopIterationAndBuffer;
    }
    const auto body = getBufferBytes(WasmBufferType::HttpResponseBody, 0, size);
    tell("response body: " + text(body));
    if (size > 0) {
      tell("appended: " + toString(setBuffer(WasmBufferType::HttpResponseBody, size, 0, " and more")));
    }
    return FilterDataStatus::Continue;
  }

  void onLog() override {
    int64_t code = 0;
    tell("code known: " + toString(getValue({"response", "code"}, &code)) + ", " + std::to_string(code));
    std::string kept;
    tell("kept: " + toString(getValue({"guest"}, &kept)) + ", " + quoted(kept));
    WasmDataPtr served;
    uint32_t cas = 0;
    const auto found = getSharedData("served", &served, &cas);
    tell("served: " + toString(found) + ", " + text(served));
    const auto before = found == WasmResult::Ok ? std::stoi(served->toString()) : 0;
    tell("set: " + toString(setSharedData("served", std::to_string(before + 1), cas)));
  }

  void onDone() override { tell("done"); }

private:
  void ask(std::string_view cluster) {
    const auto stream = id();
    const auto answered = [stream](uint32_t headers, size_t size, uint32_t trailers) {
      proxy_set_effective_context(stream);
      const auto code = text(getHeaderMapValue(WasmHeaderMapType::HttpCallResponseHeaders, ":status"));
      const auto body = text(getBufferBytes(WasmBufferType::HttpCallResponseBody, 0, size));
      tell("answer " + quoted(code) + " of " + std::to_string(headers) + " headers: " + quoted(body) + ", " +
           std::to_string(trailers) + " trailers");
      if (code != "200") {
        sendLocalResponse(403, "refused", "refused\n", {});
        return;
      }
      addRequestHeader("x-asked", body);
      tell("continued: " + std::to_string(static_cast<uint32_t>(continueRequest())));
    };
    const HeaderStringPairs headers{{":method", "POST"}, {":path", "/may"}, {":authority", "auth.test"}};
    const auto result = root()->httpCall(cluster, headers, "may it?", {}, 5000, answered);
    tell("called: " + toString(result));
    if (result != WasmResult::Ok) {
      sendLocalResponse(500, "no call", "no call\n", {});
    }
  }
};

RegisterContextFactory registered(CONTEXT_FACTORY(Stream), ROOT_FACTORY(Root), "cpp");

} // namespace
