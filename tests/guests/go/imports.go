package main

import "unsafe"

// What a host call answers.
type status uint32

const (
	ok       status = 0
	notFound status = 1
)

//go:wasmimport env proxy_log
func proxyLog(level int32, message *byte, size int32) status

//go:wasmimport env proxy_get_property
func proxyGetProperty(path *byte, size int32, value unsafe.Pointer, length *int32) status

//go:wasmimport env proxy_set_tick_period_milliseconds
func proxySetTickPeriod(milliseconds uint32) status

//go:wasmimport env proxy_get_header_map_pairs
func proxyGetHeaderMapPairs(kind int32, pairs unsafe.Pointer, length *int32) status

//go:wasmimport env proxy_get_header_map_value
func proxyGetHeaderMapValue(kind int32, name *byte, size int32, value unsafe.Pointer, length *int32) status

//go:wasmimport env proxy_add_header_map_value
func proxyAddHeaderMapValue(kind int32, name *byte, size int32, value *byte, length int32) status

//go:wasmimport env proxy_replace_header_map_value
func proxyReplaceHeaderMapValue(kind int32, name *byte, size int32, value *byte, length int32) status

//go:wasmimport env proxy_remove_header_map_value
func proxyRemoveHeaderMapValue(kind int32, name *byte, size int32) status

//go:wasmimport env proxy_get_buffer_bytes
func proxyGetBufferBytes(kind, start, size int32, bytes unsafe.Pointer, length *int32) status

//go:wasmimport env proxy_set_buffer_bytes
func proxySetBufferBytes(kind, start, size int32, bytes *byte, length int32) status

//go:wasmimport env proxy_send_local_response
func proxySendLocalResponse(code uint32, details *byte, detailsSize int32, body *byte, bodySize int32,
	headers *byte, headersSize int32, grpcStatus int32) status

//go:wasmimport env proxy_continue_stream
func proxyContinueStream(kind int32) status

//go:wasmimport env proxy_set_effective_context
func proxySetEffectiveContext(context uint32) status

//go:wasmimport env proxy_http_call
func proxyHTTPCall(cluster *byte, size int32, headers *byte, headersSize int32, body *byte, bodySize int32,
	trailers *byte, trailersSize int32, milliseconds uint32, token *uint32) status

//go:wasmimport env proxy_get_shared_data
func proxyGetSharedData(key *byte, size int32, value unsafe.Pointer, length *int32, cas *uint32) status

//go:wasmimport env proxy_set_shared_data
func proxySetSharedData(key *byte, size int32, value *byte, length int32, cas uint32) status

//go:wasmimport env proxy_define_metric
func proxyDefineMetric(kind int32, name *byte, size int32, id *uint32) status

//go:wasmimport env proxy_increment_metric
func proxyIncrementMetric(id uint32, offset int64) status

//go:wasmimport env proxy_get_metric
func proxyGetMetric(id uint32, value *uint64) status
