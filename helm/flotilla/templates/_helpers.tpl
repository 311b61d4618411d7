{{/* Names and labels. What pods have in common is in _pods.tpl. */}}

{{- define "flotilla.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters: with `-postgresql` and a revision of ten behind it, it is a label of a pod, of at most 63. */}}
{{- define "flotilla.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* What never changes: selectors cannot be changed later. Called with (dict "root" $ "component" "broker"). */}}
{{- define "flotilla.selector" -}}
app.kubernetes.io/name: {{ include "flotilla.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "flotilla.labels" -}}
{{ include "flotilla.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: flotilla
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "flotilla.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "flotilla.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "flotilla.image" -}}
{{- with .Values.image -}}
{{- with .registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- .repository -}}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "flotilla.sparkImage" -}}
{{- with .Values.spark.image -}}
{{- with .registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- .repository -}}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "flotilla.secretName" -}}
{{- default (printf "%s-secret" (include "flotilla.fullname" .)) .Values.auth.existingSecret -}}
{{- end -}}

{{/* Whether the chart brings its own PostgreSQL: "true", or nothing. */}}
{{- define "flotilla.hasPostgresql" -}}
{{- if not .Values.database.existingSecret }}true{{ end -}}
{{- end -}}

{{- define "flotilla.databaseSecretName" -}}
{{- $own := printf "%s-database" (include "flotilla.fullname" .) -}}
{{- coalesce .Values.database.existingSecret .Values.postgresql.existingSecret $own -}}
{{- end -}}

{{- define "flotilla.scheme" -}}
{{- ternary "https" "http" (not (empty .Values.tls.existingSecret)) -}}
{{- end -}}

{{/* URLs of the API inside the cluster, with the control API: brokers and managers use these. */}}
{{- define "flotilla.writerUrl" -}}
{{ include "flotilla.scheme" . }}://{{ include "flotilla.fullname" . }}-writer.{{ .Release.Namespace }}.svc:8080
{{- end -}}

{{- define "flotilla.readerUrl" -}}
{{ include "flotilla.scheme" . }}://{{ include "flotilla.fullname" . }}-reader.{{ .Release.Namespace }}.svc:8080
{{- end -}}

{{/* What programs in the cluster use. Port 80 is a name for the public port, and no promise about the protocol. */}}
{{- define "flotilla.publicUrl" -}}
{{ include "flotilla.scheme" . }}://{{ include "flotilla.fullname" . }}.{{ .Release.Namespace }}.svc:80
{{- end -}}

{{/* Whether there is more than one reader, at all times: "true", or nothing. */}}
{{- define "flotilla.hasSpareReader" -}}
{{- $least := ternary .Values.readers.autoscaling.minReplicas .Values.readers.replicas .Values.readers.autoscaling.enabled -}}
{{- if gt (int $least) 1 }}true{{ end -}}
{{- end -}}
