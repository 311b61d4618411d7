#!/usr/bin/env bash
# Create a kind cluster with an ingress controller and Flotilla: kind.sh IMAGE SPARK_IMAGE
# Needs Docker, kind, kubectl and helm. Run it again to deploy changed images to the same cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
image=$1 spark=$2
for program in docker kind kubectl helm; do
    command -v "$program" > /dev/null || { echo "make kind needs $program, which is not on the PATH" >&2; exit 1; }
done
if ! kind get clusters 2> /dev/null | grep -qx flotilla; then
    kind create cluster --config helm/kind.yaml
fi
# Each build has its own tag, so that an upgrade replaces pods whose image changed.
tag_of() { docker image inspect --format '{{.Id}}' "$1" | cut -d : -f 2 | cut -c 1-12; }
tag=$(tag_of "$image") spark_tag=$(tag_of "$spark")
docker tag "$image" "flotilla:$tag"
docker tag "$spark" "flotilla-spark:$spark_tag"
kind load docker-image "flotilla:$tag" "flotilla-spark:$spark_tag" --name flotilla
context=kind-flotilla
helm upgrade --install traefik oci://ghcr.io/traefik/helm/traefik --kube-context "$context" \
    --namespace traefik --create-namespace --set ports.web.nodePort=30080 --set ports.websecure.nodePort=30443 \
    --set service.type=NodePort --wait
helm upgrade --install flotilla helm/flotilla --kube-context "$context" \
    --namespace flotilla --create-namespace --set image.tag="$tag" --set spark.image.tag="$spark_tag" --wait --timeout 10m
helm get notes flotilla --kube-context "$context" --namespace flotilla
