package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

const (
	requestHeaders      int32 = 0
	responseHeaders     int32 = 2
	callResponseHeaders int32 = 6
	requestBody         int32 = 0
	responseBody        int32 = 1
	callResponseBody    int32 = 4
	pluginConfiguration int32 = 7
)

type header struct{ name, value string }

// text is where a text begins and how long it is.
func text(s string) (*byte, int32) {
	return unsafe.StringData(s), int32(len(s))
}

// taken is what a call has put into memory of ours.
func taken(result status, data *byte, size int32) (string, status) {
	if result != ok || data == nil {
		return "", result
	}
	return string(unsafe.Slice(data, size)), ok
}

func logf(format string, arguments ...any) {
	message, size := text(fmt.Sprintf(format, arguments...))
	proxyLog(2, message, size)
}

func property(path string) (string, status) {
	var data *byte
	var length int32
	name, size := text(path)
	result := proxyGetProperty(name, size, unsafe.Pointer(&data), &length)
	return taken(result, data, length)
}

func headerOf(kind int32, name string) (string, status) {
	var data *byte
	var length int32
	key, size := text(name)
	result := proxyGetHeaderMapValue(kind, key, size, unsafe.Pointer(&data), &length)
	return taken(result, data, length)
}

func headersOf(kind int32) []header {
	var data *byte
	var length int32
	pairs, _ := taken(proxyGetHeaderMapPairs(kind, unsafe.Pointer(&data), &length), data, length)
	if len(pairs) < 4 {
		return nil
	}
	number := func(at int) int { return int(binary.LittleEndian.Uint32([]byte(pairs[at : at+4]))) }
	headers := make([]header, number(0))
	at := 4 + 8*len(headers)
	for index := range headers {
		name, value := number(4+8*index), number(8+8*index)
		headers[index] = header{pairs[at : at+name], pairs[at+name+1 : at+name+1+value]}
		at += name + value + 2
	}
	return headers
}

// pairs is how headers cross the ABI.
func pairs(headers []header) string {
	blob := binary.LittleEndian.AppendUint32(nil, uint32(len(headers)))
	for _, header := range headers {
		blob = binary.LittleEndian.AppendUint32(blob, uint32(len(header.name)))
		blob = binary.LittleEndian.AppendUint32(blob, uint32(len(header.value)))
	}
	for _, header := range headers {
		blob = append(append(blob, header.name...), 0)
		blob = append(append(blob, header.value...), 0)
	}
	return string(blob)
}

func addHeader(kind int32, name, value string) status {
	key, size := text(name)
	data, length := text(value)
	return proxyAddHeaderMapValue(kind, key, size, data, length)
}

func replaceHeader(kind int32, name, value string) status {
	key, size := text(name)
	data, length := text(value)
	return proxyReplaceHeaderMapValue(kind, key, size, data, length)
}

func removeHeader(kind int32, name string) status {
	key, size := text(name)
	return proxyRemoveHeaderMapValue(kind, key, size)
}

func bufferOf(kind int32, size int32) (string, status) {
	var data *byte
	var length int32
	result := proxyGetBufferBytes(kind, 0, size, unsafe.Pointer(&data), &length)
	return taken(result, data, length)
}

func replaceBuffer(kind int32, body string) status {
	data, length := text(body)
	return proxySetBufferBytes(kind, 0, math.MaxInt32, data, length)
}

func appendBuffer(kind int32, body string) status {
	data, length := text(body)
	return proxySetBufferBytes(kind, math.MaxInt32, 0, data, length)
}

func reply(code uint32, headers []header, body string) status {
	data, length := text(body)
	blob, size := text(pairs(headers))
	return proxySendLocalResponse(code, nil, 0, data, length, blob, size, -1)
}

func call(cluster string, headers []header, body string) (uint32, status) {
	var token uint32
	name, size := text(cluster)
	blob, blobSize := text(pairs(headers))
	data, length := text(body)
	none, noneSize := text(pairs(nil))
	result := proxyHTTPCall(name, size, blob, blobSize, data, length, none, noneSize, 5000, &token)
	return token, result
}

func sharedData(key string) (string, uint32, status) {
	var data *byte
	var length int32
	var cas uint32
	name, size := text(key)
	result := proxyGetSharedData(name, size, unsafe.Pointer(&data), &length, &cas)
	value, result := taken(result, data, length)
	return value, cas, result
}

func setSharedData(key, value string, cas uint32) status {
	name, size := text(key)
	data, length := text(value)
	return proxySetSharedData(name, size, data, length, cas)
}

func counter(name string) (uint32, status) {
	var id uint32
	data, size := text(name)
	return id, proxyDefineMetric(0, data, size, &id)
}
