{{/* The Broker resource of the chart. */}}
{{- define "flotilla.broker.resource" -}}
{{- $values := .Values.brokers -}}
apiVersion: flotilla.dev/v1
kind: Broker
metadata:
  name: {{ include "flotilla.fullname" . }}-broker
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "flotilla.labels" (dict "root" $ "component" "broker") | nindent 4 }}
  annotations: # Only the pre-delete hook deletes the Broker; a rollback to a chart without it must not
    helm.sh/resource-policy: keep
    # Helm adopts an object that a hook created by these; see hooks/upgrade.yaml.
    meta.helm.sh/release-name: {{ .Release.Name }}
    meta.helm.sh/release-namespace: {{ .Release.Namespace }}
spec:
  cluster: {{ include "flotilla.fullname" . }}
  replicas: {{ int $values.replicas }}
  image: {{ include "flotilla.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  update: {{ $values.update }}
  storage:
    size: {{ $values.storage.size }}
    {{- with $values.storage.storageClass }}
    storageClass: {{ . | quote }}
    {{- end }}
  claimRetention:
    {{- toYaml $values.claimRetention | nindent 4 }}
  {{- with $values.rack.topologyKey }}
  rack:
    topologyKey: {{ . | quote }}
  {{- end }}
  {{- if $values.config }}
  config:
    {{- range $name, $value := $values.config }}
    {{- if not (kindIs "invalid" $value) }}
    {{ $name }}: {{ include "flotilla.settingText" $value | quote }}
    {{- end }}
    {{- end }}
  {{- end }}
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  template:
    terminationGracePeriodSeconds: {{ int $values.terminationGracePeriodSeconds }}
    spread:
      {{- toYaml $values.spread | nindent 6 }}
    {{- if or (not .Values.serviceAccount.create) .Values.serviceAccount.name }}
    serviceAccountName: {{ include "flotilla.serviceAccountName" . }}
    {{- end }}
    {{- with .Values.imagePullSecrets }}
    imagePullSecrets:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $values.podLabels }}
    labels:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $values.podAnnotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- range $name := list "extraEnv" "nodeSelector" "tolerations" "affinity" }}
    {{- with get $values $name }}
    {{ $name }}:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- end }}
    {{- with $values.priorityClassName }}
    priorityClassName: {{ . | quote }}
    {{- end }}
{{- end -}}

{{/* "true" if Helm can create the Broker. Not in an upgrade from a chart without an operator: Helm checks for the CRD
     before hooks run. */}}
{{- define "flotilla.broker.isDefined" -}}
{{- if or .Release.IsInstall (.Capabilities.APIVersions.Has "flotilla.dev/v1/Broker") }}true{{ end -}}
{{- end -}}
