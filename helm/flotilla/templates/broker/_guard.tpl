{{/* Refuses an upgrade that would cost the quorum. Kubernetes replaces brokers from the highest ordinal down, and waits for
     each that it replaced, but it does not look at those that are still to come: one of them that is not ready, and one
     that is being replaced, are two away at a time. So an unready broker below a ready one is a reason to stop; one above
     all ready ones is not, because it is replaced first. This looks at the cluster, so it is silent in `helm template`.
     Called with (dict "root" $ "name" "…-broker" "checksum" "…"). */}}
{{- define "flotilla.broker.guard" -}}
{{- $root := .root -}}
{{- $namespace := $root.Release.Namespace -}}
{{- $found := lookup "apps/v1" "StatefulSet" $namespace .name -}}
{{- if $found -}}
{{- $there := dig "spec" "replicas" 0 $found | int -}}
{{- if and (lt (int $root.Values.brokers.replicas) $there) (not $root.Values.brokers.scaleDown) -}}
{{- fail (printf "brokers.replicas is %d, and there are %d brokers: those that would go may hold replicas, and then partitions lose their majority. If they hold none, say so with brokers.scaleDown=true." (int $root.Values.brokers.replicas) $there) -}}
{{- end -}}
{{- $isChanged := ne (dig "metadata" "annotations" "checksum/template" "" $found) .checksum -}}
{{- if and $isChanged (eq $root.Values.brokers.updateStrategy "RollingUpdate") -}}
{{- $ready := "" -}}
{{- range $ordinal := until $there | reverse -}}
{{- $name := printf "%s-%d" $.name $ordinal -}}
{{- $isReady := false -}}
{{- range dig "status" "conditions" list (lookup "v1" "Pod" $namespace $name) -}}
{{- if and (eq .type "Ready") (eq .status "True") }}{{ $isReady = true }}{{ end -}}
{{- end -}}
{{- if $isReady -}}
{{- $ready = $name -}}
{{- else if $ready -}}
{{- fail (printf "this upgrade replaces brokers, %s is not ready, and %s would be replaced before it: two away at a time may cost partitions their majority. Wait until it is ready. Or, if this upgrade is what it needs: upgrade with --set brokers.updateStrategy=OnDelete, `kubectl delete pod %s`, wait until it is ready, and upgrade again without that setting." $name $ready $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
