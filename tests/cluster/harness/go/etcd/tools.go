//go:build tools

// Package etcd names the program that is built, so that go.mod and go.sum pin all that it needs.
package etcd

import _ "go.etcd.io/etcd/server/v3"
