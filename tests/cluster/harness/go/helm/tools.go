//go:build tools

// Package helm names the program that is built, so that go.mod and go.sum pin all that it needs.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
