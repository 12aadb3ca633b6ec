// Command guest is a filter that calls the ABI as the Go SDK does: a reactor of Go's own compiler, whose `init` runs in
// `_initialize`, with `proxy_on_memory_allocate` for an allocator. It tells what it sees, and changes what comes by.
package main

import (
	"encoding/binary"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

func main() {}

const (
	goOn  int32 = 0
	pause int32 = 1
)

// A stream, and what it asks before its request goes on.
type stream struct {
	root  uint32
	token uint32
}

var (
	streams  = map[uint32]*stream{}
	requests uint32
	ticks    int
	began    time.Time
)

func init() {
	began = time.Now()
}

//go:wasmexport proxy_abi_version_0_2_0
func abiVersion() {}

//go:wasmexport proxy_on_memory_allocate
func allocate(size uint32) *byte {
	return &make([]byte, size)[0]
}

//go:wasmexport proxy_on_context_create
func onContextCreate(context, root uint32) {
	if root != 0 {
		streams[context] = &stream{root: root}
	}
}

//go:wasmexport proxy_on_vm_start
func onVMStart(root uint32, size int32) bool {
	return true
}

//go:wasmexport proxy_on_configure
func onConfigure(root uint32, size int32) bool {
	configuration, result := bufferOf(pluginConfiguration, size)
	name, _ := property("plugin_root_id")
	logf("%s configured with %q (%d), started before: %v", name, configuration, result, began.Before(time.Now()))
	requests, result = counter("guest_requests")
	logf("counter: %d", result)
	if strings.Contains(configuration, "tick") {
		logf("tick: %d", proxySetTickPeriod(50))
	}
	return configuration != "refuse"
}

//go:wasmexport proxy_on_tick
func onTick(root uint32) {
	ticks++
	logf("tick %d", ticks)
	if ticks == 2 {
		proxySetTickPeriod(0)
	}
}

//go:wasmexport proxy_on_request_headers
func onRequestHeaders(context uint32, count int32, end bool) int32 {
	headers := headersOf(requestHeaders)
	lines := make(chan string)
	// Goroutines run within the callback.
	go func() {
		defer close(lines)
		for _, header := range headers {
			lines <- header.name + ": " + header.value
		}
	}()
	var told []string
	for line := range lines {
		told = append(told, line)
	}
	sort.Strings(told)
	logf("request of %d headers, %d told, end %v", count, len(told), end)
	for _, line := range told {
		logf("-> %s", line)
	}
	logf("incremented: %d", proxyIncrementMetric(requests, 1))
	absent, result := headerOf(requestHeaders, "x-absent")
	logf("x-absent: %q (%d)", absent, result)
	logf("replaced, added, removed: %d %d %d", replaceHeader(requestHeaders, "x-one", "first"),
		addHeader(requestHeaders, "x-guest", "go"), removeHeader(requestHeaders, "x-gone"))
	removeHeader(requestHeaders, "content-length")

	path, _ := headerOf(requestHeaders, ":path")
	switch path {
	case "/hello":
		logf("replied: %d", reply(200, []header{{"hello", "world"}, {"x-empty", ""}}, "hello from Go\n"))
		return pause
	case "/call", "/fails", "/nobody":
		cluster := map[string]string{"/call": "auth", "/fails": "broken", "/nobody": "nobody"}[path]
		asks := []header{{":method", "POST"}, {":path", "/may"}, {":authority", "auth.test"}, {"accept", "*/*"}}
		token, result := call(cluster, asks, "may it?")
		logf("called: %d", result)
		if result != ok {
			reply(500, nil, "no call\n")
			return pause
		}
		streams[context].token = token
		return pause
	case "/panic":
		var none map[string]int
		none[path] = 1
	}
	return goOn
}

//go:wasmexport proxy_on_http_call_response
func onCallResponse(root, token uint32, count, size, trailers int32) {
	for context, asking := range streams {
		if asking.root != root || asking.token != token {
			continue
		}
		asking.token = 0
		logf("effective: %d", proxySetEffectiveContext(context))
		code, result := headerOf(callResponseHeaders, ":status")
		body, bodyResult := bufferOf(callResponseBody, size)
		logf("answer %q (%d) of %d bytes: %q (%d), %d trailers", code, result, size, body, bodyResult, trailers)
		if code != "200" {
			logf("replied: %d", reply(403, nil, "refused\n"))
			return
		}
		addHeader(requestHeaders, "x-asked", body)
		logf("continued: %d", proxyContinueStream(0))
	}
}

//go:wasmexport proxy_on_request_body
func onRequestBody(context uint32, size int32, end bool) int32 {
	if !end {
		return pause
	}
	body, result := bufferOf(requestBody, size)
	logf("request body of %d: %q (%d)", size, body, result)
	logf("replaced: %d", replaceBuffer(requestBody, strings.ToUpper(body)))
	return goOn
}

//go:wasmexport proxy_on_response_headers
func onResponseHeaders(context uint32, count int32, end bool) int32 {
	for _, header := range headersOf(responseHeaders) {
		if header.name != "date" && header.name != "server" {
			logf("<- %s: %s", header.name, header.value)
		}
	}
	logf("removed, replaced: %d %d", removeHeader(responseHeaders, "content-length"),
		replaceHeader(responseHeaders, "x-served-by", "go"))
	return goOn
}

//go:wasmexport proxy_on_response_body
func onResponseBody(context uint32, size int32, end bool) int32 {
	if !end {
		return pause
	}
	body, result := bufferOf(responseBody, size)
	logf("response body: %q (%d)", body, result)
	if result == ok {
		logf("appended: %d", appendBuffer(responseBody, " and more"))
	}
	return goOn
}

//go:wasmexport proxy_on_done
func onDone(context uint32) bool {
	return true
}

//go:wasmexport proxy_on_log
func onLog(context uint32) {
	code, result := property("response\x00code")
	if result == ok {
		code = strconv.FormatUint(binary.LittleEndian.Uint64([]byte(code)), 10)
	}
	before, cas, result := sharedData("served")
	logf("served %q (%d), code %s", before, result, code)
	served, _ := strconv.Atoi(before)
	logf("set: %d", setSharedData("served", fmt.Sprint(served+1), cas))
	var count uint64
	proxyGetMetric(requests, &count)
	logf("requests %d", count)
}

//go:wasmexport proxy_on_delete
func onDelete(context uint32) {
	delete(streams, context)
}
