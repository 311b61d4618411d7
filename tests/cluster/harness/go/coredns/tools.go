//go:build tools

// Package coredns names the program that is built, so that go.mod and go.sum pin all that it needs.
package coredns

import _ "github.com/coredns/coredns"
