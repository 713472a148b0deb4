// Package extproc is the ext_proc gRPC server: it reads what Envoy tells about a
// request, lets a pool's policy pick a pod, and tells Envoy where to send it.
//
// One HTTP request is one gRPC stream. Envoy sends up to six kinds of message on
// it, each direction in the order headers, body, trailers, and both directions
// independent of each other. What has to be answered when depends on the mode in
// which Envoy sends bodies; see the README of this folder for the table.
//
// The stream ends when the HTTP request ends, however it ends, so the end of the
// stream is what gives the request's reservation back.
package extproc
