//go:build tools

// Package ingress names the program that is built, so that go.mod and go.sum pin all that it needs.
package ingress

import _ "github.com/zalando/skipper/cmd/skipper"
